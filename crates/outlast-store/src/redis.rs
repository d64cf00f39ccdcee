//! Several instances on one Redis, 7 or later, alone or in a cluster.
//!
//! Every change is one script, which Redis runs alone and writes to its file as a whole, so nothing is judged here:
//! fences, the ends of logs, limits and mail are checked where they are changed. Scripts on their way together
//! share one sync of the file. Lists, limits and due times are global, so all keys share one hash tag: a cluster
//! works, but one of its servers has everything.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use outlast_core::{ConversationId, Seq};
use redis::cmd;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::contract::{
    Append, AppendError, ClaimError, Document, Fence, InstanceId, Listed, Loaded, MAIL_PAGE, Mail, MailId,
    Newest, Query, Record, Store, StoreError, Table,
};
use crate::open::Durable;
use crate::page;
use crate::wakes::Wakes;

mod append;
mod documents;
mod failure;
mod items;
mod link;
mod listener;
mod reads;
mod scripts;
mod server;

use link::Link;
use scripts::Scripts;
use server::Server;

/// How often to look for what no wake-up told.
const POLL: Duration = Duration::from_secs(1);
/// What an instance leaves behind is removed when its lease expired this long ago.
const FORGET_AFTER: Duration = Duration::from_secs(3600);

/// One instance's handle. Dropping it leaves its lease to expire; call [`Store::leave`] to end it at once.
pub struct RedisStore {
    instance: InstanceId,
    link: Link,
    scripts: Scripts,
    shared: Arc<Shared>,
    /// Those who keep the connection and look for changes; they end with the store.
    _tasks: JoinSet<()>,
}

/// What the tasks and the callers both touch.
struct Shared {
    wakes: Wakes,
    /// Changes when mail may have arrived.
    arrived: watch::Sender<()>,
}

impl RedisStore {
    pub async fn open(url: &str, durable: Durable) -> Result<RedisStore, StoreError> {
        let server = Server::new(url, durable)?;
        let (link, keep_up) = Link::new(server.clone()).await?;
        let instance = format!("instance_{}", uuid::Uuid::now_v7().simple());
        let shared = Arc::new(Shared { wakes: Wakes::default(), arrived: watch::Sender::new(()) });
        let mut tasks = JoinSet::new();
        tasks.spawn(keep_up);
        tasks.spawn(listener::listen(server, Arc::clone(&shared), instance.clone()));
        tasks.spawn(listener::poll(link.clone(), Arc::clone(&shared), POLL));
        let instance = InstanceId(instance);
        let store = Self { instance, link, scripts: Scripts::new(), shared, _tasks: tasks };
        store.forget_the_long_gone().await?;
        Ok(store)
    }

    async fn forget_the_long_gone(&self) -> Result<(), StoreError> {
        let asked = self.link.run(&self.scripts.long_gone, |script| {
            script.arg(millis(FORGET_AFTER));
        });
        let gone: Vec<String> = asked.await?;
        for instance in gone {
            self.give_up(&instance).await?;
        }
        Ok(())
    }

    /// Ends a lease, and gives up what its instance held and sent, in bounded steps.
    async fn give_up(&self, instance: &str) -> Result<(), StoreError> {
        loop {
            let step = self.link.run(&self.scripts.leave, |script| {
                script.arg(instance);
            });
            if step.await? {
                continue;
            }
            return Ok(());
        }
    }

    /// Removes the documents of a deleted conversation, in bounded steps.
    async fn remove(&self, conversation: &ConversationId) -> Result<(), StoreError> {
        loop {
            let step = self.link.run(&self.scripts.remove, |script| {
                script.arg(conversation.as_str());
            });
            if step.await? {
                continue;
            }
            return Ok(());
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[async_trait]
impl Store for RedisStore {
    async fn append(&self, append: Append) -> Result<(), AppendError> {
        page::assert_sound(&append);
        let written = self.link.run(&self.scripts.append, |script| {
            append::give(script, &append, &self.instance.0);
        });
        let answer: (String, String) = written.await?;
        append::judge(answer)?;
        if let Some(last) = append.records.last() {
            self.shared.wakes.wake(&append.conversation, last.seq);
        }
        Ok(())
    }

    async fn read(
        &self,
        conversation: &ConversationId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.records(conversation, after, max_bytes).await
    }

    async fn load(
        &self,
        conversation: &ConversationId,
        newest: Newest,
    ) -> Result<Option<Loaded>, StoreError> {
        self.loaded(conversation, newest).await
    }

    async fn get(&self, table: Table, id: &str) -> Result<Option<Document>, StoreError> {
        self.document(table, id).await
    }

    async fn list(&self, query: Query) -> Result<Listed, StoreError> {
        let table = page::check(&query)?;
        Ok(self.page(table, &query).await?.into_listed(query.due_by.is_some()))
    }

    fn instance(&self) -> &InstanceId {
        &self.instance
    }

    async fn renew(&self, lease: Duration) -> Result<(), StoreError> {
        let renewed = self.link.run(&self.scripts.renew, |script| {
            script.arg(&self.instance.0).arg(millis(lease));
        });
        Ok(renewed.await?)
    }

    async fn leave(&self) -> Result<(), StoreError> {
        self.give_up(&self.instance.0).await
    }

    async fn others(&self) -> Result<Vec<InstanceId>, StoreError> {
        let asked = self.link.run(&self.scripts.others, |script| {
            script.arg(&self.instance.0);
        });
        let others: Vec<String> = asked.await?;
        Ok(others.into_iter().map(InstanceId).collect())
    }

    async fn raise_fences(&self, fence: Fence) -> Result<Fence, StoreError> {
        let raised = self.link.run(&self.scripts.raise_fences, |script| {
            script.arg(fence.0);
        });
        let latest: String = raised.await?;
        append::fence(&latest)
    }

    async fn claim(&self, conversation: &ConversationId) -> Result<Fence, ClaimError> {
        loop {
            let claimed = self.link.run(&self.scripts.claim, |script| {
                script.arg(conversation.as_str()).arg(&self.instance.0);
            });
            let (answer, value): (String, String) = claimed.await.map_err(StoreError::from)?;
            match answer.as_str() {
                "yours" => return Ok(append::fence(&value)?),
                "held" => return Err(ClaimError::HeldBy(InstanceId(value))),
                // A removal that was interrupted: its documents must not be found in a new conversation.
                "removing" => self.remove(conversation).await?,
                other => return Err(StoreError::Broken(format!("a claim was answered with {other}")).into()),
            }
        }
    }

    async fn release(&self, conversation: &ConversationId, fence: Fence) -> Result<bool, StoreError> {
        let released = self.link.run(&self.scripts.release, |script| {
            script.arg(conversation.as_str()).arg(fence.0).arg(&self.instance.0);
        });
        Ok(released.await?)
    }

    async fn send(&self, mail: Mail) -> Result<(), StoreError> {
        let sent = self.link.run(&self.scripts.send, |script| {
            script.arg(&mail.id.0).arg(mail.conversation.as_str()).arg(&mail.body[..]).arg(&self.instance.0);
        });
        Ok(sent.await?)
    }

    async fn mail_waiting(&self) -> Result<Vec<ConversationId>, StoreError> {
        let asked = self.link.run(&self.scripts.mail_waiting, |script| {
            script.arg(&self.instance.0);
        });
        let waiting: Vec<String> = asked.await?;
        Ok(waiting.into_iter().map(ConversationId::from).collect())
    }

    async fn mail(&self, conversation: &ConversationId) -> Result<Vec<Mail>, StoreError> {
        let asked = self.link.run(&self.scripts.mail, |script| {
            script.arg(conversation.as_str()).arg(MAIL_PAGE);
        });
        let letters: Vec<(String, Vec<u8>)> = asked.await?;
        let mail =
            |(id, body)| Mail { id: MailId(id), conversation: conversation.clone(), body: Bytes::from(body) };
        Ok(letters.into_iter().map(mail).collect())
    }

    async fn reply(&self, mail: &MailId) -> Result<Option<Bytes>, StoreError> {
        let key = self.link.key(&format!("mail:{}", mail.0));
        let reply: Option<Vec<u8>> = self.link.ask(cmd("HGET").arg(key).arg("reply")).await?;
        Ok(reply.map(Bytes::from))
    }

    async fn forget(&self, mail: &MailId) -> Result<(), StoreError> {
        let forgotten = self.link.run(&self.scripts.forget, |script| {
            script.arg(&mail.0).arg(&self.instance.0);
        });
        Ok(forgotten.await?)
    }

    fn watch_mail(&self) -> watch::Receiver<()> {
        self.shared.arrived.subscribe()
    }

    fn watch(&self, conversation: &ConversationId) -> watch::Receiver<Seq> {
        self.shared.wakes.watch(conversation)
    }

    async fn trim(&self, conversation: &ConversationId, first: Seq, last: Seq) -> Result<(), StoreError> {
        if first > last {
            return Ok(());
        }
        loop {
            let step = self.link.run(&self.scripts.trim, |script| {
                script.arg(conversation.as_str()).arg(first.0).arg(last.0);
            });
            if step.await? {
                continue;
            }
            return Ok(());
        }
    }

    async fn delete(&self, conversation: &ConversationId) -> Result<(), StoreError> {
        let hidden = self.link.run(&self.scripts.delete, |script| {
            script.arg(conversation.as_str()).arg(&self.instance.0);
        });
        let () = hidden.await?;
        self.shared.wakes.wake(conversation, Seq::ZERO);
        self.remove(conversation).await
    }
}
