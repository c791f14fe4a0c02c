// franz-go behind TLS and logins: a case a line, as in ../secure.py.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const securePatience = 20 * time.Second

func secure(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for number, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		given := map[string]string{}
		for _, word := range strings.Split(line, "\t") {
			key, value, _ := strings.Cut(word, "=")
			given[key] = value
		}
		if err := secureTrip(given); err != nil {
			fmt.Printf("fail\t%d\t%s\n", number, strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Printf("ok\t%d\n", number)
		}
	}
	return nil
}

func secureTrip(given map[string]string) error {
	options, err := secureOptions(given)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), securePatience)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	record := &kgo.Record{Topic: given["topic"], Partition: 0, Value: []byte("there and back")}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		return err
	}
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		if fetches.NumRecords() > 0 {
			return nil
		}
	}
}

func secureOptions(given map[string]string) ([]kgo.Opt, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(given["bootstrap"]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordDeliveryTimeout(securePatience),
		kgo.AllowAutoTopicCreation(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{given["topic"]: {0: kgo.NewOffset().AtStart()}}),
	}
	if strings.HasSuffix(given["protocol"], "SSL") {
		config, err := secureTLS(given)
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	mechanism, err := secureLogin(given)
	if mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	return options, err
}

func secureTLS(given map[string]string) (*tls.Config, error) {
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if given["ca"] != "" {
		pem, err := os.ReadFile(given["ca"])
		if err != nil {
			return nil, err
		}
		config.RootCAs.AppendCertsFromPEM(pem)
	}
	if given["key"] != "" {
		pair, err := tls.LoadX509KeyPair(given["certificate"], given["key"])
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func secureLogin(given map[string]string) (sasl.Mechanism, error) {
	user, password := given["user"], given["password"]
	switch given["mechanism"] {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		token, err := os.ReadFile(given["token"])
		return oauth.Auth{Token: strings.TrimSpace(string(token))}.AsMechanism(), err
	}
	return nil, nil
}
