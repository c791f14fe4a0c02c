package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// diary is the file of a group member; groups.py says what stands in it.
type diary struct {
	lock sync.Mutex
	file *os.File
}

func (d *diary) say(words ...any) {
	line := fmt.Sprint(time.Now().UnixMilli())
	for _, word := range words {
		line += fmt.Sprintf("\t%v", word)
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	fmt.Fprintln(d.file, line)
}

func numbers(partitions []int32) string {
	words := make([]string, 0, len(partitions))
	for _, partition := range partitions {
		words = append(words, fmt.Sprint(partition))
	}
	return strings.Join(words, ",")
}

// member runs until SIGTERM, with the library of that name.
func member(library string, given map[string]string) error {
	file, err := os.OpenFile(given["out"], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	notes := &diary{file: file}
	if library == "sarama" {
		err = saramaMember(notes, given, stop)
	} else {
		err = franzMember(notes, given, stop)
	}
	if err != nil {
		notes.say("error", err)
		return err
	}
	notes.say("end")
	return nil
}
