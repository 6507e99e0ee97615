"""Functions in the database: publishing inside a user's own transaction, and columns that people can read.

`headrace_publish(topic, key, value)` does in SQL what planning does for one message without a source: it takes the
topic's row lock, routes by key (FNV-1a 64, bit for bit) or round-robin, gives the next offset, and updates the row. It
commits and rolls back with the calling transaction, and holds the topic's row until then: publishers wait for it.
What only a server can decide is refused: a topic that drops repeated payloads, or takes no raw values.

It runs with the rights of its owner (SECURITY DEFINER), so that a role that publishes needs no right on any table.
Which role may publish to which topics is in `headrace_grants`; `headrace_grant` and `headrace_revoke` are for the owner
of the schema. The functions have the `search_path` schema, `pg_temp`: without it, `pg_temp` would be searched first,
and a caller's temporary table could shadow ours. PUBLIC may use none of this.
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

CREATE OR REPLACE FUNCTION headrace_matches(name text, pattern text) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT SET search_path FROM CURRENT AS $$
    SELECT name LIKE replace(replace(replace(replace(pattern, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%')
$$;

CREATE OR REPLACE FUNCTION headrace_granted(topic text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
-- The key of a topic, for a caller who may publish to it; others are refused, whether it exists or not.
-- Called with the rights of the owner, who is `current_user` then: the caller is who logged in, or the role they have
-- taken since, which PostgreSQL lets them do only with roles they belong to.
DECLARE
    caller name := coalesce(nullif(current_setting('role'), 'none'), session_user);
    found_key text := coalesce((SELECT t.topickey FROM all_topics t
        WHERE t.topickey IN (topic, lower(topic)) OR t.topicname = topic
        ORDER BY t.topickey = topic DESC LIMIT 1), lower(topic));
BEGIN
    IF pg_has_role(caller, current_user, 'USAGE') THEN
        RETURN found_key;
    END IF;
    PERFORM 1 FROM headrace_grants g
        WHERE pg_has_role(caller, g.grantee, 'USAGE')
        AND (headrace_matches(found_key, g.pattern) OR headrace_matches(found_key, lower(g.pattern)));
    IF NOT FOUND THEN
        RAISE EXCEPTION 'role % may not publish to topic %', quote_ident(caller), quote_literal(topic)
            USING ERRCODE = 'insufficient_privilege',
            HINT = 'The owner of the schema grants it: SELECT headrace_grant(role, pattern).';
    END IF;
    RETURN found_key;
END $$;

CREATE OR REPLACE FUNCTION headrace_publish(
    topic text, key bytea, value bytea, attributes bytea[] DEFAULT NULL,
    OUT partition integer, OUT "offset" bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    head record;
    size bigint;
    place bigint;
    now_us bigint;
    given bytea := nullif(key, ''::bytea);
    -- Before the row is locked: who may not publish must not hold up those who may.
    found_key text := headrace_granted(topic);
BEGIN
    IF cardinality(attributes) % 2 <> 0 THEN
        RAISE EXCEPTION 'attributes must be names and values in turn';
    END IF;
    IF cardinality(attributes) > 2000 THEN
        RAISE EXCEPTION 'the message has % attributes: it may have at most 1000', cardinality(attributes) / 2;
    END IF;
    -- Every reader takes names as text.
    FOR i IN 1 .. coalesce(cardinality(attributes), 0) / 2 LOOP
        IF attributes[2 * i - 1] IS NULL THEN
            RAISE EXCEPTION 'the name of an attribute is null: only its value may be';
        END IF;
        PERFORM convert_from(attributes[2 * i - 1], 'UTF8');
    END LOOP;
    SELECT t.*, t.settings::jsonb AS rules INTO head FROM all_topics t
        WHERE t.topickey = found_key FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'topic % does not exist: create it first', quote_literal(topic);
    END IF;
    IF head.rules ->> 'deduplication' = 'payload' THEN
        RAISE EXCEPTION 'topic % drops repeated payloads: publish to it through a server', quote_literal(topic);
    END IF;
    IF NOT head.rules -> 'codecs' ? 'raw' THEN
        RAISE EXCEPTION 'topic % takes no raw values: publish to it through a server', quote_literal(topic);
    END IF;
    IF given IS NOT NULL AND head.rules ->> 'key_hash' = 'murmur2' THEN
        RAISE EXCEPTION 'topic % places keys by murmur2: publish to it through a server', quote_literal(topic);
    END IF;
    size := coalesce(octet_length(value), 0) + coalesce(octet_length(key), 0)
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

CREATE OR REPLACE FUNCTION headrace_grant(role regrole, pattern text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
-- Let a role publish to the topics that a pattern matches; `*` stands for any characters.
BEGIN
    IF role IS NULL OR coalesce(pattern, '') = '' THEN
        RAISE EXCEPTION 'role and pattern are needed: such as headrace_grant(''app'', ''orders.*'')';
    END IF;
    INSERT INTO headrace_grants VALUES (role, pattern) ON CONFLICT DO NOTHING;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %s', current_schema(), role);
    EXECUTE format('GRANT EXECUTE ON FUNCTION headrace_publish(text, bytea, bytea, bytea[]), '
        'headrace_publish(text, text, text) TO %s', role);
END $$;

CREATE OR REPLACE FUNCTION headrace_revoke(role regrole, pattern text) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
-- Take such a grant back; whether there was one. USAGE of the schema stays: it may be there for other reasons.
DECLARE
    is_found boolean;
BEGIN
    DELETE FROM headrace_grants g WHERE g.grantee = role AND g.pattern = headrace_revoke.pattern;
    is_found := FOUND;
    PERFORM 1 FROM headrace_grants g WHERE g.grantee = role;
    IF NOT FOUND THEN
        EXECUTE format('REVOKE EXECUTE ON FUNCTION headrace_publish(text, bytea, bytea, bytea[]), '
            'headrace_publish(text, text, text) FROM %s', role);
    END IF;
    RETURN is_found;
END $$;

REVOKE ALL ON FUNCTION
    headrace_text(bytea), headrace_json(bytea[]), headrace_partition(bytea, integer),
    headrace_moved(bigint[], integer, bigint), headrace_matches(text, text), headrace_granted(text),
    headrace_publish(text, bytea, bytea, bytea[]), headrace_publish(text, text, text),
    headrace_first_at(regclass, integer, bigint, bigint, bigint),
    headrace_grant(regrole, text), headrace_revoke(regrole, text) FROM PUBLIC;
"""
