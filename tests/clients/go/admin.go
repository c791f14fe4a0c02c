package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// administrator does with a topic of its own what franz-go's admin client can, and tells what it saw as JSON.
type administrator struct {
	*kadm.Client
	topic string
	saw   map[string]any
}

type step struct {
	name string
	do   func(context.Context) (any, error)
}

func administer(bootstrap, topic string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic(topic), kgo.DisableIdempotentWrite())
	if err != nil {
		return err
	}
	defer client.Close()
	a := administrator{Client: kadm.NewClient(client), topic: topic, saw: map[string]any{}}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	for _, step := range a.steps(client) {
		saw, err := step.do(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		a.saw[step.name] = saw
	}
	return json.NewEncoder(os.Stdout).Encode(a.saw)
}

func (a *administrator) steps(client *kgo.Client) []step {
	value := func(s string) *string { return &s }
	return []step{
		{"created", func(ctx context.Context) (any, error) {
			made, err := a.CreateTopic(ctx, 1, 1, map[string]*string{"retention.ms": value("-1")}, a.topic)
			return made.NumPartitions, err
		}},
		{"written", func(ctx context.Context) (any, error) {
			for n := range 10 {
				if err := client.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(n))).FirstErr(); err != nil {
					return nil, err
				}
			}
			return 10, nil
		}},
		{"retention", func(ctx context.Context) (any, error) {
			change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: value("123456789")}}
			done, err := a.AlterTopicConfigs(ctx, change, a.topic)
			if err != nil {
				return nil, err
			}
			if one, err := done.On(a.topic, nil); err != nil || one.Err != nil {
				return nil, fmt.Errorf("%w %w", err, one.Err)
			}
			return a.config(ctx, "retention.ms")
		}},
		{"deleted up to", func(ctx context.Context) (any, error) {
			upto := kadm.Offsets{}
			upto.AddOffset(a.topic, 0, 4, -1)
			done, err := a.DeleteRecords(ctx, upto)
			if err != nil {
				return nil, err
			}
			one, _ := done.Lookup(a.topic, 0)
			return one.LowWatermark, one.Err
		}},
		{"offsets", func(ctx context.Context) (any, error) { return a.offsets(ctx) }},
		{"partitions", func(ctx context.Context) (any, error) {
			if _, err := a.UpdatePartitions(ctx, 3, a.topic); err != nil {
				return nil, err
			}
			// What a client knows of a topic may be older than the answer.
			for {
				topics, err := a.ListTopics(ctx, a.topic)
				if err != nil || len(topics[a.topic].Partitions) == 3 {
					return len(topics[a.topic].Partitions), err
				}
				select {
				case <-ctx.Done():
					return len(topics[a.topic].Partitions), ctx.Err()
				case <-time.After(50 * time.Millisecond):
				}
			}
		}},
		{"log dirs", func(ctx context.Context) (any, error) {
			dirs, err := a.DescribeAllLogDirs(ctx, nil)
			var bytes int64
			dirs.Each(func(dir kadm.DescribedLogDir) {
				dir.Topics.Each(func(p kadm.DescribedLogDirPartition) {
					if p.Topic == a.topic {
						bytes += p.Size
					}
				})
			})
			return bytes, err
		}},
		{"brokers", func(ctx context.Context) (any, error) {
			brokers, err := a.ListBrokers(ctx)
			return brokers.NodeIDs(), err
		}},
		{"gone", func(ctx context.Context) (any, error) {
			done, err := a.DeleteTopics(ctx, a.topic)
			if err != nil {
				return nil, err
			}
			return slices.Collect(maps.Keys(done)), done.Error()
		}},
	}
}

func (a *administrator) config(ctx context.Context, key string) (any, error) {
	all, err := a.DescribeTopicConfigs(ctx, a.topic)
	if err != nil {
		return nil, err
	}
	one, err := all.On(a.topic, nil)
	for _, config := range one.Configs {
		if config.Key == key {
			return config.MaybeValue(), err
		}
	}
	return nil, fmt.Errorf("no %s in %d configs: %w", key, len(one.Configs), err)
}

func (a *administrator) offsets(ctx context.Context) (any, error) {
	starts, err := a.ListStartOffsets(ctx, a.topic)
	if err != nil {
		return nil, err
	}
	ends, err := a.ListEndOffsets(ctx, a.topic)
	start, _ := starts.Lookup(a.topic, 0)
	end, _ := ends.Lookup(a.topic, 0)
	return []int64{start.Offset, end.Offset}, err
}
