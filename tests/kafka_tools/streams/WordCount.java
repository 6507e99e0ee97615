import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueStore;

/** Counts words by Kafka Streams, over a repartition topic and without a changelog; prints the counts in the end. */
public class WordCount {
    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0], in = arguments[1], out = arguments[2], directory = arguments[3];
        int lines = 1000;
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("application.id", "word-count");
        settings.put("default.key.serde", Serdes.String().getClass().getName());
        settings.put("default.value.serde", Serdes.String().getClass().getName());
        settings.put("commit.interval.ms", "500");
        settings.put("auto.offset.reset", "earliest");
        settings.put("state.dir", directory);
        settings.put("statestore.cache.max.bytes", "0");
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(in)
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts").withLoggingDisabled())
            .toStream()
            .mapValues(String::valueOf)
            .to(out);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < lines; number++) {
                producer.send(new ProducerRecord<>(in, "key-" + number, "alpha beta word-" + number % 10));
            }
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        Map<String, Long> counts = new TreeMap<>();
        settings.put("group.id", "word-count-reader");
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(out));
            while (counts.values().stream().mapToLong(Long::longValue).sum() < 3L * lines) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(300))) {
                    counts.put(record.key(), Long.parseLong(record.value()));
                }
            }
        }
        streams.close(Duration.ofSeconds(30));
        System.out.println(counts);
    }
}
