// Publishes the numbers from 0 on, round after round as fast as it can, and prints what became of each in a line of its
// own: "message <number> <milliseconds until it was known> stored", or, in the place of the last word, the error.
//
// Arguments: service URL, topic, "batches" or "single", rounds, messages in a round, milliseconds between rounds, bytes
// of each message, filled up with zeros.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

func main() {
	rounds, inRound, pauseMs, size := number(4), number(5), number(6), number(7)
	quiet := logrus.New()
	quiet.SetLevel(logrus.ErrorLevel)
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: os.Args[1], Logger: log.NewLoggerWithLogrus(quiet)})
	check(err)
	defer client.Close()
	producer, err := client.CreateProducer(pulsar.ProducerOptions{
		Topic:              os.Args[2],
		DisableBatching:    os.Args[3] != "batches",
		SendTimeout:        120 * time.Second,
		MaxPendingMessages: 100_000,
	})
	check(err)
	fates := make([]string, rounds*inRound)
	var open sync.WaitGroup
	open.Add(len(fates))
	for index := range fates {
		if index > 0 && index%inRound == 0 {
			time.Sleep(time.Duration(pauseMs) * time.Millisecond)
		}
		content := make([]byte, size)
		copy(content, strconv.Itoa(index))
		message := pulsar.ProducerMessage{Payload: content, Properties: map[string]string{"producer": "go"}}
		sentAt := time.Now()
		producer.SendAsync(context.Background(), &message,
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				fates[index] = fmt.Sprintf("%d %s", time.Since(sentAt).Milliseconds(), fate(err))
				open.Done()
			})
	}
	open.Wait()
	for index, fate := range fates {
		fmt.Println("message", index, fate)
	}
}

func number(index int) int {
	value, err := strconv.Atoi(os.Args[index])
	check(err)
	return value
}

func fate(err error) string {
	if err == nil {
		return "stored"
	}
	return err.Error()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
