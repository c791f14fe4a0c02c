package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func franzMember(notes *diary, given map[string]string, stop chan os.Signal) error {
	session, err := strconv.Atoi(given["session"])
	if err != nil {
		return err
	}
	topic := given["topic"]
	balancer := kgo.CooperativeStickyBalancer()
	if given["assignor"] == "range" {
		balancer = kgo.RangeBalancer()
	}
	say := func(word string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			notes.say(word, numbers(partitions[topic]))
		}
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(given["bootstrap"]),
		kgo.ConsumerGroup(given["group"]),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		// Partitions stay until what was polled is committed.
		kgo.BlockRebalanceOnPoll(),
		kgo.Balancers(balancer),
		kgo.SessionTimeout(time.Duration(session) * time.Millisecond),
		kgo.HeartbeatInterval(time.Second),
		kgo.OnPartitionsAssigned(say("assigned")),
		kgo.OnPartitionsRevoked(say("revoked")),
		kgo.OnPartitionsLost(say("lost")),
	}
	if instance, ok := given["instance"]; ok {
		options = append(options, kgo.InstanceID(instance))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	notes.say("start")
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		if err := franzStep(notes, client); err != nil {
			return err
		}
	}
}

func franzStep(notes *diary, client *kgo.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	fetches := client.PollFetches(ctx)
	cancel()
	defer client.AllowRebalance()
	for _, failed := range fetches.Errors() {
		if !errors.Is(failed.Err, context.DeadlineExceeded) {
			notes.say("note", failed.Err)
		}
	}
	records := fetches.Records()
	if len(records) == 0 {
		return nil
	}
	ends := map[int32]int64{}
	for _, record := range records {
		notes.say("record", record.Partition, record.Offset, string(record.Value))
		ends[record.Partition] = record.Offset + 1
	}
	ctx, cancel = context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := client.CommitRecords(ctx, records...); err != nil {
		return err
	}
	for partition, end := range ends {
		notes.say("committed", partition, end)
	}
	return nil
}
