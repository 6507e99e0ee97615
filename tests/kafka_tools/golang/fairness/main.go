// One fetch session of franz-go over two topics: the first has an idle partition and one with a backlog, the second a
// backlog. Prints how many of the first half of all records came from the second topic.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const recordsPerTopic = 10_000

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	seeds := kgo.SeedBrokers(os.Args[1])
	first, second := "fairness-first", "fairness-second"
	producer := client(
		seeds,
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(20_000),
	)
	defer producer.Close()
	_, err := kadm.NewClient(producer).CreateTopics(ctx, 2, 1, nil, first, second)
	check(err)
	value := make([]byte, 1000)
	for number := 0; number < recordsPerTopic; number++ {
		producer.Produce(ctx, &kgo.Record{Topic: first, Partition: 1, Value: value}, nil)
		producer.Produce(ctx, &kgo.Record{Topic: second, Partition: 0, Value: value}, nil)
	}
	check(producer.Flush(ctx))

	start := kgo.NewOffset().AtStart()
	consumer := client(
		seeds,
		kgo.FetchMaxBytes(100_000),
		kgo.FetchMaxPartitionBytes(100_000),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{first: {0: start, 1: start}, second: {0: start}}),
	)
	defer consumer.Close()
	read, ofSecond := 0, 0
	for read < recordsPerTopic {
		fetches := consumer.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			if read < recordsPerTopic && record.Topic == second {
				ofSecond++
			}
			read++
		})
	}
	fmt.Println(ofSecond)
}

func client(options ...kgo.Opt) *kgo.Client {
	created, err := kgo.NewClient(options...)
	check(err)
	return created
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
