//! Keeps one checked connection, and makes another when it breaks.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, Script, ScriptInvocation};
use tokio::sync::watch;

use super::failure::{Failure, needs_reconnect, reason};
use super::server::Server;
use crate::StoreError;

/// The waits between two tries to connect: the first, and the longest.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// A caller waits this long for a connection that is being made.
const LINKED_WITHIN: Duration = Duration::from_secs(1);

/// Where the connection stands. Each has a number, so that an old failure does not end a new connection.
#[derive(Clone)]
enum State {
    Up { number: u64, connection: MultiplexedConnection },
    Down { why: String },
}

#[derive(Clone)]
pub(super) struct Link {
    state: watch::Receiver<State>,
    /// The number of the newest connection that was found broken.
    broken: Arc<watch::Sender<u64>>,
    root: Arc<str>,
}

impl Link {
    /// Connects, or says why that is not possible. The future keeps the link up and must run as long as it is used.
    pub(super) async fn new(
        server: Server,
    ) -> Result<(Link, impl Future<Output = ()> + Send + 'static), StoreError> {
        let connection = server.connect().await?;
        let (states, state) = watch::channel(State::Up { number: 1, connection });
        let broken = Arc::new(watch::Sender::new(0));
        let link = Link { state, broken: Arc::clone(&broken), root: server.root.as_str().into() };
        Ok((link, keep_up(server, states, broken.subscribe())))
    }

    /// Runs a script with these arguments.
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        script: &Script,
        give: impl FnOnce(&mut ScriptInvocation<'_>) + Send,
    ) -> Result<T, Failure> {
        let (number, mut connection) = self.connection().await?;
        let mut invocation = script.prepare_invoke();
        invocation.key(&*self.root);
        give(&mut invocation);
        let answer: Result<redis::Value, _> = invocation.invoke_async(&mut connection).await;
        let value = answer.map_err(|error| {
            if needs_reconnect(&error) {
                self.report(number);
            }
            Failure::of(&error)
        })?;
        redis::from_redis_value(value)
            .map_err(|error| Failure::Broken(format!("unexpected reply from Redis: {error}")))
    }

    /// Runs a single command that only reads.
    pub(super) async fn ask<T: FromRedisValue>(&self, command: &redis::Cmd) -> Result<T, Failure> {
        let (number, mut connection) = self.connection().await?;
        command.query_async(&mut connection).await.map_err(|error| {
            if needs_reconnect(&error) {
                self.report(number);
            }
            Failure::NotRun(reason(&error))
        })
    }

    pub(super) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.root)
    }

    async fn connection(&self) -> Result<(u64, MultiplexedConnection), Failure> {
        let mut state = self.state.clone();
        let up = state.wait_for(|state| matches!(state, State::Up { .. }));
        if let Ok(Ok(state)) = tokio::time::timeout(LINKED_WITHIN, up).await
            && let State::Up { number, connection } = &*state
        {
            return Ok((*number, connection.clone()));
        }
        match &*self.state.borrow() {
            State::Up { number, connection } => Ok((*number, connection.clone())),
            State::Down { why } => Err(Failure::NotRun(why.clone())),
        }
    }

    fn report(&self, number: u64) {
        self.broken.send_if_modified(|broken| {
            let news = *broken < number;
            *broken = number.max(*broken);
            news
        });
    }
}

async fn keep_up(server: Server, states: watch::Sender<State>, mut broken: watch::Receiver<u64>) {
    let mut number = 1;
    loop {
        if broken.wait_for(|broken| *broken >= number).await.is_err() {
            return;
        }
        states.send_replace(State::Down { why: "the connection to Redis was lost".to_owned() });
        let mut wait = FIRST_WAIT;
        let connection = loop {
            match server.connect().await {
                Ok(connection) => break connection,
                Err(error) => {
                    tracing::warn!(%error, "cannot use Redis; will retry");
                    let why = match error {
                        StoreError::Unavailable(why) | StoreError::Broken(why) => why,
                    };
                    states.send_replace(State::Down { why });
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        };
        number += 1;
        tracing::info!("reconnected to Redis");
        states.send_replace(State::Up { number, connection });
    }
}
