// Tries all at once to send and to receive ten messages, each as another client, and prints what became of each try in
// a line of its own: "name: served", or, in the place of the last word, the error. What the client logs, its reasons
// among it, goes to standard error.
//
// Arguments, five for each: name, service URL, file of the authorities, credentials ("token TOKEN", "basic USER
// PASSWORD", or nothing; this client has no certificates), topic.
use std::time::Duration;

use futures::future::join_all;
use futures::StreamExt;
use pulsar::authentication::basic::BasicAuthentication;
use pulsar::{Authentication, ConnectionRetryOptions, Consumer, Pulsar, TokioExecutor};
use tokio::time::timeout;

type Fate = Result<(), Box<dyn std::error::Error>>;

const OF_EACH: usize = 5;
const PATIENCE: Duration = Duration::from_secs(10);

struct Errors;

impl log::Log for Errors {
    fn enabled(&self, _: &log::Metadata) -> bool {
        true
    }

    fn log(&self, record: &log::Record) {
        eprintln!("{}", record.args());
    }

    fn flush(&self) {}
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    log::set_logger(&Errors).expect("it is the first");
    log::set_max_level(log::LevelFilter::Error);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let fates = join_all(arguments.chunks_exact(OF_EACH).map(fate)).await;
    for (one, fate) in arguments.chunks_exact(OF_EACH).zip(fates) {
        println!("{}: {}", one[0], fate);
    }
}

async fn fate(one: &[String]) -> String {
    let said = match timeout(PATIENCE, served(&one[1], &one[2], &one[3], &one[4])).await {
        Ok(Ok(())) => "served".to_string(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "nothing happens".to_string(),
    };
    said.replace('\n', " ")
}

async fn served(url: &str, authorities: &str, credentials: &str, topic: &str) -> Fate {
    let mut builder = Pulsar::builder(url, TokioExecutor)
        .with_certificate_chain_file(authorities)?
        .with_connection_retry_options(ConnectionRetryOptions { max_retries: 1, ..Default::default() });
    builder = match credentials.split(' ').collect::<Vec<_>>()[..] {
        ["token", token] => builder.with_auth(Authentication { name: "token".to_string(), data: token.into() }),
        ["basic", user, password] => builder.with_auth_provider(BasicAuthentication::new(user, password)),
        _ => builder,
    };
    let client = builder.build().await?;
    let mut consumer: Consumer<Vec<u8>, _> = client.consumer().with_topic(topic).with_subscription("s").build().await?;
    let mut producer = client.producer().with_topic(topic).build().await?;
    for number in 0..10 {
        producer.send_non_blocking(number.to_string()).await?.await?;
    }
    for number in 0..10 {
        let message = consumer.next().await.ok_or("the consumer is at its end")??;
        if message.payload.data != number.to_string().into_bytes() {
            return Err(format!("received {:?} in the place of {number}", message.payload.data).into());
        }
        consumer.ack(&message).await?;
    }
    Ok(())
}
