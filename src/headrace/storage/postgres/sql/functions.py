"""Functions in the database: publishing inside a user's own transaction, and columns that people can read.

`headrace_publish(topic, key, value)` does in SQL what planning does for one message without a source: it takes the
topic's row, routes by key (FNV-1a 64, bit for bit) or by turn, gives the next offset, and moves the row on. It commits
and rolls back with the transaction it is called in, and holds the topic's row until then: publishers wait for it.
What only a server can decide is refused: a topic that drops repeated payloads, or takes no raw values.
"""

from __future__ import annotations

from typing import Final

FUNCTIONS: Final = r"""
CREATE OR REPLACE FUNCTION headrace_text(data bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN convert_from(data, 'UTF8');
EXCEPTION WHEN others THEN
    RETURN encode(data, 'escape');
END $$;

CREATE OR REPLACE FUNCTION headrace_json(attributes bytea[]) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path FROM CURRENT AS $$
DECLARE
    result jsonb := '[]';
BEGIN
    FOR i IN 1 .. cardinality(attributes) / 2 LOOP
        result := result || jsonb_build_array(jsonb_build_array(
            headrace_text(attributes[2 * i - 1]), headrace_text(attributes[2 * i])));
    END LOOP;
    RETURN result;
END $$;

CREATE OR REPLACE FUNCTION headrace_partition(key bytea, partitions integer) RETURNS integer
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
-- FNV-1a 64 in two halves of 32 bits, since a bigint has no room for the product. The prime is 2^40 + 435.
DECLARE
    high bigint := 3421674724;
    low bigint := 2216829733;
    product bigint;
BEGIN
    FOR i IN 0 .. length(key) - 1 LOOP
        low := low # get_byte(key, i);
        product := low * 435;
        high := (high * 435 + (product >> 32) + (low << 8)) & 4294967295;
        low := product & 4294967295;
    END LOOP;
    RETURN ((high % partitions) * (4294967296 % partitions) + low % partitions) % partitions;
END $$;

CREATE OR REPLACE FUNCTION headrace_moved(places bigint[], place integer, step bigint) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    WHILE cardinality(places) < place + 1 LOOP
        places := places || 0::bigint;
    END LOOP;
    places[place + 1] := places[place + 1] + step;
    RETURN places;
END $$;

CREATE OR REPLACE FUNCTION headrace_publish(
    topic text, key bytea, value bytea, attributes bytea[] DEFAULT NULL,
    OUT partition integer, OUT "offset" bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    head record;
    size bigint;
    place bigint;
    now_us bigint;
    given bytea := nullif(key, ''::bytea);
BEGIN
    IF value IS NULL THEN
        RAISE EXCEPTION 'value is null: every message needs a value; it may be empty';
    END IF;
    IF cardinality(attributes) % 2 <> 0 OR array_position(attributes, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'attributes must be names and values in turn, none of them null';
    END IF;
    IF cardinality(attributes) > 2000 THEN
        RAISE EXCEPTION 'the message has % attributes: it may have at most 1000', cardinality(attributes) / 2;
    END IF;
    -- Every reader takes names as text.
    FOR i IN 1 .. coalesce(cardinality(attributes), 0) / 2 LOOP
        PERFORM convert_from(attributes[2 * i - 1], 'UTF8');
    END LOOP;
    SELECT t.*, t.settings::jsonb AS rules INTO head FROM all_topics t
        WHERE t.topickey IN (topic, lower(topic)) OR t.topicname = topic
        ORDER BY t.topickey = topic DESC LIMIT 1 FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'topic % does not exist: create it first', quote_literal(topic);
    END IF;
    IF head.rules ->> 'deduplication' = 'payload' THEN
        RAISE EXCEPTION 'topic % drops repeated payloads: publish to it through a server', quote_literal(topic);
    END IF;
    IF NOT head.rules -> 'codecs' ? 'raw' THEN
        RAISE EXCEPTION 'topic % takes no raw values: publish to it through a server', quote_literal(topic);
    END IF;
    size := octet_length(value) + coalesce(octet_length(key), 0)
        + coalesce((SELECT sum(octet_length(part)) FROM unnest(attributes) AS part), 0);
    IF size > (head.rules ->> 'message_bytes_max')::bigint THEN
        RAISE EXCEPTION 'the message has % bytes: topic % takes at most %',
            size, quote_literal(topic), head.rules ->> 'message_bytes_max';
    END IF;
    IF given IS NULL THEN
        partition := head.round_robin % head.partitions;
    ELSE
        partition := headrace_partition(given, head.partitions);
    END IF;
    "offset" := coalesce(head.ends[partition + 1], 0);
    place := coalesce(head.byte_ends[partition + 1], 0);
    now_us := greatest(
        (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, head.last_time_us + 1, head.created_us + 1);
    EXECUTE format(
        'INSERT INTO %I (partition, "offset", time_us, bytes_before, value, key, attributes) '
        'VALUES ($1, $2, $3, $4, $5, $6, $7)', 'topic_' || head.topicid || '_' || head.segment)
        USING partition, "offset", now_us, place, value, key, attributes;
    UPDATE all_topics t SET
        tailid = t.tailid + 1,
        commits = t.commits + 1,
        last_time_us = now_us,
        round_robin = t.round_robin + (given IS NULL)::integer,
        ends = headrace_moved(t.ends, headrace_publish.partition, 1),
        byte_ends = headrace_moved(t.byte_ends, headrace_publish.partition, size)
        WHERE t.topicid = head.topicid;
    PERFORM pg_notify('headrace_' || md5(current_schema()), 'topic:' || head.topicid);
END $$;

CREATE OR REPLACE FUNCTION headrace_publish(topic text, key text, value text,
    OUT partition integer, OUT "offset" bigint)
LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT * FROM headrace_publish($1, convert_to($2, 'UTF8'), convert_to($3, 'UTF8'), NULL::bytea[])
$$;

CREATE OR REPLACE FUNCTION headrace_first_at(
    messages regclass, wanted integer, first bigint, stop bigint, time_us bigint) RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
-- Times rise with offsets, so the place is found by halving.
DECLARE
    middle bigint;
    found bigint;
BEGIN
    WHILE first < stop LOOP
        middle := first + (stop - first) / 2;
        EXECUTE format('SELECT time_us FROM %s WHERE partition = $1 AND "offset" = $2', messages)
            INTO found USING wanted, middle;
        IF found < time_us THEN
            first := middle + 1;
        ELSE
            stop := middle;
        END IF;
    END LOOP;
    RETURN first;
END $$;
"""
