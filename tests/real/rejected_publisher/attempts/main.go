// Tries all at once to send and to receive ten messages, each as another client, and prints what became of each try in
// a line of its own: "name: served", or, in the place of the last word, the error.
//
// Arguments, five for each: name, service URL, file of the authorities, credentials ("token TOKEN", "basic USER
// PASSWORD", "tls CERTIFICATE KEY", or nothing), topic.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

const ofEach = 5

func main() {
	arguments := os.Args[1:]
	fates := make([]string, len(arguments)/ofEach)
	var open sync.WaitGroup
	for index := range fates {
		one := arguments[index*ofEach : (index+1)*ofEach]
		open.Add(1)
		go func() {
			defer open.Done()
			fates[index] = one[0] + ": served"
			if err := try(one[1], one[2], strings.Fields(one[3]), one[4]); err != nil {
				fates[index] = one[0] + ": " + strings.ReplaceAll(err.Error(), "\n", " ")
			}
		}()
	}
	open.Wait()
	for _, fate := range fates {
		fmt.Println(fate)
	}
}

func try(url, authorities string, credentials []string, topic string) error {
	shown, err := authentication(credentials)
	if err != nil {
		return err
	}
	quiet := logrus.New()
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL:                   url,
		TLSTrustCertsFilePath: authorities,
		TLSValidateHostname:   true,
		Authentication:        shown,
		OperationTimeout:      4 * time.Second,
		Logger:                log.NewLoggerWithLogrus(quiet),
	})
	if err != nil {
		return err
	}
	defer client.Close()
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s"})
	if err != nil {
		return err
	}
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic})
	if err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for number := range 10 {
		if _, err := producer.Send(soon, &pulsar.ProducerMessage{Payload: []byte(strconv.Itoa(number))}); err != nil {
			return err
		}
	}
	for number := range 10 {
		message, err := consumer.Receive(soon)
		if err != nil {
			return err
		}
		if content := string(message.Payload()); content != strconv.Itoa(number) {
			return fmt.Errorf("received %s in the place of %d", content, number)
		}
	}
	return nil
}

func authentication(credentials []string) (pulsar.Authentication, error) {
	if len(credentials) == 0 {
		return nil, nil
	}
	switch credentials[0] {
	case "token":
		return pulsar.NewAuthenticationToken(credentials[1]), nil
	case "tls":
		return pulsar.NewAuthenticationTLS(credentials[1], credentials[2]), nil
	default:
		return pulsar.NewAuthenticationBasic(credentials[1], credentials[2])
	}
}
