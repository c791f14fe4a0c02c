// franz-go and kafka-go, each with the verbs that every client program of these tests has. The first argument chooses.
// franz-go and sarama are members of groups, too.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

const patience = 60 * time.Second

// client is one of the libraries. Partitions are named, never subscribed to; members of groups are elsewhere.
type client interface {
	write(topic, codec, acks string, lines [][]byte) error
	read(topic string, partition int, offset, count int64, out *bufio.Writer) error
	names(expected []string) error
}

func main() {
	if err := run(os.Args[1], os.Args[2], options(os.Args[3:])); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func options(args []string) map[string]string {
	given := map[string]string{}
	for i := 0; i+1 < len(args); i += 2 {
		given[strings.TrimPrefix(args[i], "--")] = args[i+1]
	}
	return given
}

func run(library, verb string, given map[string]string) error {
	if verb == "secure" {
		return secure(given["file"])
	}
	if verb == "member" {
		return member(library, given)
	}
	if verb == "administer" {
		return administer(given["bootstrap"], given["topic"])
	}
	if verb == "transfer" {
		words := []string{given["topic"], given["id"], given["seconds"], given["partitions"], given["out"]}
		return transfers(library, given["bootstrap"], words)
	}
	var c client = &franz{bootstrap: given["bootstrap"]}
	if library == "kafka-go" {
		c = &segment{bootstrap: given["bootstrap"]}
	}
	switch verb {
	case "jobs":
		return jobs(c, given["file"])
	case "write":
		return job(c, []string{verb, given["topic"], given["codec"], given["acks"], given["file"]})
	}
	return job(c, []string{verb, given["topic"], given["partition"], given["offset"], given["count"], given["out"]})
}

func jobs(c client, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for number, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if err := job(c, strings.Split(line, "\t")); err != nil {
			fmt.Printf("fail\t%d\t%s\n", number, strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Printf("ok\t%d\n", number)
		}
	}
	return nil
}

func job(c client, words []string) error {
	switch words[0] {
	case "write":
		lines, err := linesOf(words[4])
		if err != nil {
			return err
		}
		return c.write(words[1], words[2], words[3], lines)
	case "read":
		return readTo(c, words)
	case "names":
		return namesOf(c, words[1])
	}
	return fmt.Errorf("unknown verb %q", words[0])
}

// linesOf gives the lines of a file without their newlines, whatever bytes they hold.
func linesOf(file string) ([][]byte, error) {
	text, err := os.ReadFile(file)
	return bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")), err
}

func readTo(c client, words []string) error {
	partition, err := strconv.Atoi(words[2])
	if err != nil {
		return err
	}
	offset, err := strconv.ParseInt(words[3], 10, 64)
	if err != nil {
		return err
	}
	count, err := strconv.ParseInt(words[4], 10, 64)
	if err != nil {
		return err
	}
	file, err := os.Create(words[5])
	if err != nil {
		return err
	}
	defer file.Close()
	out := bufio.NewWriter(file)
	if err := c.read(words[1], partition, offset, count, out); err != nil {
		return err
	}
	return out.Flush()
}

func namesOf(c client, file string) error {
	lines, err := linesOf(file)
	if err != nil {
		return err
	}
	expected := make([]string, 0, len(lines))
	for _, line := range lines {
		expected = append(expected, strings.Fields(string(line))[0])
	}
	return c.names(expected)
}
