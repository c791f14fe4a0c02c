package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

const bankPatience = 120 * time.Second

// teller carries out one transfer; the error means that nobody knows what became of it.
type teller interface {
	transfer(topic, key string, n, partitions int, commit bool) error
	close()
}

// transfers makes the transfers of Bank.java: TOPIC ID SECONDS PARTITIONS OUT.
func transfers(library, bootstrap string, words []string) error {
	topic, id, out := words[0], words[1], words[4]
	seconds, err := strconv.Atoi(words[2])
	if err != nil {
		return err
	}
	partitions, err := strconv.Atoi(words[3])
	if err != nil {
		return err
	}
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	defer file.Close()
	open := func() teller { return newFranzTeller(bootstrap, id) }
	if library == "sarama" {
		open = func() teller { return newSaramaTeller(bootstrap, id) }
	}
	teller := open()
	defer func() { teller.close() }()
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	for n := 0; time.Now().Before(end); n++ {
		key := fmt.Sprintf("%s-%d", id, n)
		commit := n%3 != 2
		outcome := map[bool]string{true: "committed", false: "aborted"}[commit]
		if err := teller.transfer(topic, key, n, partitions, commit); err != nil {
			fmt.Fprintln(os.Stderr, key, err)
			outcome = "unknown"
			teller.close()
			teller = open()
		}
		if _, err := fmt.Fprintf(file, "%s\t%s\n", outcome, key); err != nil {
			return err
		}
	}
	return nil
}

// legs are the two records of a transfer: partition and amount.
func legs(n, partitions int) [2][2]int {
	return [2][2]int{{n % partitions, -(n + 1)}, {(n + 1) % partitions, n + 1}}
}

type franzTeller struct{ client *kgo.Client }

func newFranzTeller(bootstrap, id string) teller {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.TransactionalID(id),
		kgo.TransactionTimeout(20*time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordDeliveryTimeout(bankPatience),
	)
	if err != nil {
		panic(err)
	}
	return &franzTeller{client}
}

func (f *franzTeller) transfer(topic, key string, n, partitions int, commit bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), bankPatience)
	defer cancel()
	if err := f.client.BeginTransaction(); err != nil {
		return err
	}
	for _, leg := range legs(n, partitions) {
		record := &kgo.Record{Topic: topic, Partition: int32(leg[0]), Key: []byte(key), Value: []byte(strconv.Itoa(leg[1]))}
		if err := f.client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	return f.client.EndTransaction(ctx, kgo.TransactionEndTry(commit))
}

func (f *franzTeller) close() { f.client.Close() }

type saramaTeller struct{ producer sarama.SyncProducer }

func newSaramaTeller(bootstrap, id string) teller {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Transaction.ID = id
	config.Producer.Transaction.Timeout = 20 * time.Second
	config.Producer.Transaction.Retry.Max = 200
	config.Producer.Transaction.Retry.Backoff = 50 * time.Millisecond
	config.Producer.Retry.Max = 200
	config.Net.MaxOpenRequests = 1
	for deadline := time.Now().Add(bankPatience); ; {
		producer, err := sarama.NewSyncProducer([]string{bootstrap}, config)
		if err == nil {
			return &saramaTeller{producer}
		}
		if time.Now().After(deadline) {
			panic(err)
		}
		<-time.After(100 * time.Millisecond)
	}
}

func (s *saramaTeller) transfer(topic, key string, n, partitions int, commit bool) error {
	if err := s.producer.BeginTxn(); err != nil {
		return err
	}
	for _, leg := range legs(n, partitions) {
		message := &sarama.ProducerMessage{Topic: topic, Partition: int32(leg[0]), Key: sarama.StringEncoder(key), Value: sarama.StringEncoder(strconv.Itoa(leg[1]))}
		if _, _, err := s.producer.SendMessage(message); err != nil {
			return err
		}
	}
	if commit {
		return s.producer.CommitTxn()
	}
	return s.producer.AbortTxn()
}

func (s *saramaTeller) close() { _ = s.producer.Close() }
