package main

import (
	"context"
	"os"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

// claims is sarama's handler: it has no rebalance callbacks but the begin and the end of a session.
type claims struct {
	notes *diary
	topic string
}

func (c *claims) Setup(session sarama.ConsumerGroupSession) error {
	c.notes.say("assigned", numbers(session.Claims()[c.topic]))
	return nil
}

func (c *claims) Cleanup(session sarama.ConsumerGroupSession) error {
	c.notes.say("revoked", numbers(session.Claims()[c.topic]))
	return nil
}

func (c *claims) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			c.take(session, message)
			for waiting := len(claim.Messages()); waiting > 0; waiting-- {
				if message, open = <-claim.Messages(); open {
					c.take(session, message)
				}
			}
			// Sarama does not tell whether a commit succeeded.
			session.Commit()
		case <-session.Context().Done():
			return nil
		}
	}
}

func (c *claims) take(session sarama.ConsumerGroupSession, message *sarama.ConsumerMessage) {
	c.notes.say("record", message.Partition, message.Offset, string(message.Value))
	session.MarkMessage(message, "")
}

func saramaMember(notes *diary, given map[string]string, stop chan os.Signal) error {
	milliseconds, err := strconv.Atoi(given["session"])
	if err != nil {
		return err
	}
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	// Its commits wait on the same connection as its fetches.
	config.Consumer.MaxWaitTime = 50 * time.Millisecond
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = time.Duration(milliseconds) * time.Millisecond
	config.Consumer.Group.Heartbeat.Interval = time.Second
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	config.Consumer.Group.InstanceId = given["instance"]
	config.Metadata.RefreshFrequency = 5 * time.Second
	group, err := sarama.NewConsumerGroup([]string{given["bootstrap"]}, given["group"], config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-stop
		cancel()
	}()
	notes.say("start")
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{given["topic"]}, &claims{notes, given["topic"]}); err != nil {
			notes.say("note", err)
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
	return group.Close()
}
