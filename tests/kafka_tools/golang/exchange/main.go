// sarama: an idempotent producer sends numbered records while members of a group come and go. Prints how many different
// numbers the group has processed, how many records it read in all, and whether each partition was read in order.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	topic   = "by-sarama"
	records = 10_000
)

type seen struct {
	lock    sync.Mutex
	numbers map[string]int
	ordered bool
}

func (*seen) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*seen) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (s *seen) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	next := claim.InitialOffset()
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			s.lock.Lock()
			s.ordered = s.ordered && message.Offset >= next
			next = message.Offset + 1
			s.numbers[string(message.Value)]++
			s.lock.Unlock()
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func (s *seen) distinct() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return len(s.numbers)
}

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.V3_6_0_0
	made.Producer.Idempotent = true
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Producer.Return.Successes = true
	made.Net.MaxOpenRequests = 1
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	return made
}

func member(ctx context.Context, address string, into *seen) {
	group, err := sarama.NewConsumerGroup([]string{address}, "group-of-sarama", config())
	check(err)
	defer group.Close()
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{topic}, into); err != nil && ctx.Err() == nil {
			check(err)
		}
	}
}

func main() {
	address := os.Args[1]
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	admin, err := sarama.NewClusterAdmin([]string{address}, config())
	check(err)
	check(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 4, ReplicationFactor: 1}, false))
	check(admin.Close())

	into := &seen{numbers: map[string]int{}, ordered: true}
	var members sync.WaitGroup
	join := func(ctx context.Context) {
		members.Add(1)
		go func() { defer members.Done(); member(ctx, address, into) }()
	}
	join(ctx)
	short, leave := context.WithCancel(ctx)
	join(short)

	producer, err := sarama.NewSyncProducer([]string{address}, config())
	check(err)
	for first := 0; first < records; first += 500 {
		batch := make([]*sarama.ProducerMessage, 500)
		for row := range batch {
			number := strconv.Itoa(first + row)
			batch[row] = &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(number), Value: sarama.StringEncoder(number)}
		}
		check(producer.SendMessages(batch))
		if first == records/2 {
			leave()
			join(ctx)
		}
	}
	check(producer.Close())
	for into.distinct() < records && ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
	}
	cancel()
	members.Wait()
	read := 0
	for _, times := range into.numbers {
		read += times
	}
	fmt.Println(len(into.numbers), read, into.ordered)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
