package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type franz struct{ bootstrap string }

func (f *franz) write(topic, codec, acks string, lines [][]byte) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(f.bootstrap),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordDeliveryTimeout(patience),
		kgo.ProducerBatchCompression(map[string]kgo.CompressionCodec{
			"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
			"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
		}[codec]),
	}
	switch acks {
	case "0":
		options = append(options, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	case "1":
		options = append(options, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "all":
		options = append(options, kgo.RequiredAcks(kgo.AllISRAcks()), kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	records := make([]*kgo.Record, 0, len(lines))
	for _, line := range lines {
		records = append(records, &kgo.Record{Topic: topic, Partition: 0, Value: line})
	}
	return client.ProduceSync(context.Background(), records...).FirstErr()
}

func (f *franz) read(topic string, partition int, offset, count int64, out *bufio.Writer) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(f.bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {int32(partition): kgo.NewOffset().At(offset)}}),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for left := count; left > 0; {
		// The patience is for progress, not for the whole: a corpus takes longer.
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		fetches := client.PollFetches(ctx)
		cancel()
		if errors.Is(fetches.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("%d records still missing after %s without one", left, time.Duration(patience))
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			if left--; left >= 0 {
				out.Write(record.Value)
				out.WriteByte('\n')
			}
		})
	}
	return nil
}

func (f *franz) names(expected []string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(f.bootstrap))
	if err != nil {
		return err
	}
	defer client.Close()
	request := kmsg.NewPtrMetadataRequest()
	for _, name := range expected {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		request.Topics = append(request.Topics, topic)
	}
	response, err := request.RequestWith(context.Background(), client)
	if err != nil {
		return err
	}
	found := map[string]bool{}
	for _, topic := range response.Topics {
		found[*topic.Topic] = topic.ErrorCode == 0
	}
	for _, name := range expected {
		if !found[name] {
			return fmt.Errorf("no topic %q", name)
		}
	}
	return nil
}
