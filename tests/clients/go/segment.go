package main

import (
	"bufio"
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"
)

// segment is segmentio/kafka-go. It has no idempotent producer.
type segment struct{ bootstrap string }

func (s *segment) write(topic, codec, acks string, lines [][]byte) error {
	writer := &kafka.Writer{
		Addr:         kafka.TCP(s.bootstrap),
		Topic:        topic,
		Balancer:     kafka.BalancerFunc(func(kafka.Message, ...int) int { return 0 }),
		BatchTimeout: 5 * time.Millisecond,
		RequiredAcks: map[string]kafka.RequiredAcks{
			"0": kafka.RequireNone, "1": kafka.RequireOne, "all": kafka.RequireAll,
		}[acks],
		Compression: map[string]kafka.Compression{
			"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
		}[codec],
	}
	messages := make([]kafka.Message, 0, len(lines))
	for _, line := range lines {
		messages = append(messages, kafka.Message{Value: line})
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return errors.Join(writer.WriteMessages(ctx, messages...), writer.Close())
}

func (s *segment) read(topic string, partition int, offset, count int64, out *bufio.Writer) error {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{s.bootstrap}, Topic: topic, Partition: partition,
		MinBytes: 1, MaxBytes: 10 << 20, MaxWait: 200 * time.Millisecond,
	})
	defer reader.Close()
	if err := reader.SetOffset(offset); err != nil {
		return err
	}
	for left := count; left > 0; left-- {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		message, err := reader.ReadMessage(ctx)
		cancel()
		if err != nil {
			return err
		}
		out.Write(message.Value)
		out.WriteByte('\n')
	}
	return nil
}

func (s *segment) names(expected []string) error {
	connection, err := kafka.Dial("tcp", s.bootstrap)
	if err != nil {
		return err
	}
	defer connection.Close()
	_, err = connection.ReadPartitions(expected...)
	return err
}
