//! Several instances on one Convex deployment, hosted or self-hosted, through its HTTP API.
//!
//! The functions in the folder `convex` at the top of the repository do the work. Every change is one mutation, which
//! Convex runs as a serializable transaction, so nothing is judged here: fences, the ends of logs, limits and mail are
//! checked where they are changed. What could be too much for one transaction is done in steps. Over HTTP there are no
//! subscriptions, so each instance polls for what the others have written.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use outlast_core::{ConversationId, Seq};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::contract::{
    Append, AppendError, ClaimError, Document, Fence, InstanceId, Listed, Loaded, MAIL_PAGE, Mail, MailId,
    Newest, Query, Record, Store, StoreError, Table,
};
use crate::page;
use crate::wakes::Wakes;

mod append;
mod deployment;
mod documents;
mod failure;
mod items;
mod lines;
mod opaque;
mod poll;
mod reads;

use deployment::Deployment;

/// The version of the functions that this server calls.
const FUNCTIONS: &str = "1";
/// What an instance leaves behind is removed when its lease expired this long ago.
const FORGET_AFTER: Duration = Duration::from_secs(3600);
/// About how much mail is taken at once. The rest follows when it was answered.
const MAIL_BYTES: usize = 1 << 20;

/// One instance's handle. Dropping it leaves its lease to expire; call [`Store::leave`] to end it at once.
pub struct ConvexStore {
    instance: InstanceId,
    deployment: Deployment,
    shared: Arc<Shared>,
    /// Looks for changes; ends with the store.
    _tasks: JoinSet<()>,
}

/// What the poll and the callers both touch.
struct Shared {
    wakes: Wakes,
    /// Changes when mail may have arrived.
    arrived: watch::Sender<()>,
}

/// A short answer, and what it is about.
#[derive(Deserialize)]
struct Verdict {
    answer: String,
    value: String,
}

impl ConvexStore {
    /// The URL is `convex+https://key:DEPLOY_KEY@host`, or `convex+http://…` on this machine.
    pub async fn open(url: &str) -> Result<ConvexStore, StoreError> {
        let deployment = Deployment::new(url)?;
        check_functions(&deployment).await?;
        let instance = InstanceId(format!("instance_{}", uuid::Uuid::now_v7().simple()));
        let shared = Arc::new(Shared { wakes: Wakes::default(), arrived: watch::Sender::new(()) });
        let mut tasks = JoinSet::new();
        tasks.spawn(poll::poll(deployment.clone(), Arc::clone(&shared), instance.clone()));
        let store = Self { instance, deployment, shared, _tasks: tasks };
        store.forget_the_long_gone().await?;
        Ok(store)
    }

    async fn forget_the_long_gone(&self) -> Result<(), StoreError> {
        let args = json!({ "ageMs": millis(FORGET_AFTER) });
        let gone: Vec<String> = self.deployment.mutation("owners:longGone", &args).await?;
        for instance in gone {
            self.give_up(&instance).await?;
        }
        Ok(())
    }

    /// Ends a lease, and gives up what its instance held and sent.
    async fn give_up(&self, instance: &str) -> Result<(), StoreError> {
        self.in_steps("owners:leave", &json!({ "instance": instance })).await
    }

    /// Removes the rows of a deleted conversation.
    async fn remove(&self, conversation: &ConversationId) -> Result<(), StoreError> {
        self.in_steps("removal:step", &json!({ "conversation": conversation.as_str() })).await
    }

    /// Runs a mutation until it says that nothing is left to do. Each step makes what is left smaller.
    async fn in_steps(&self, path: &str, args: &serde_json::Value) -> Result<(), StoreError> {
        while self.deployment.mutation(path, args).await? {}
        Ok(())
    }
}

async fn check_functions(deployment: &Deployment) -> Result<(), StoreError> {
    let found: String = deployment.query("version:version", &json!({})).await.map_err(|failure| {
        match StoreError::from(failure) {
            StoreError::Broken(why) => StoreError::Broken(format!(
                "Convex does not run Outlast's functions; deploy the folder convex with `npx convex deploy`: {why}"
            )),
            unavailable => unavailable,
        }
    })?;
    if found != FUNCTIONS {
        return Err(StoreError::Broken(format!(
            "Convex has version {found} of Outlast's functions and this server needs version {FUNCTIONS}; deploy \
             the folder convex of the same release"
        )));
    }
    Ok(())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Convex has integers of 64 bits with a sign. No log and no fence gets that far.
fn integer(number: u64) -> String {
    number.min(i64::MAX.cast_unsigned()).to_string()
}

fn fence(text: &str) -> Result<Fence, StoreError> {
    text.parse().map(Fence).map_err(|_| StoreError::Broken(format!("{text} is not a fence")))
}

fn seq(text: &str) -> Result<Seq, StoreError> {
    text.parse().map(Seq).map_err(|_| StoreError::Broken(format!("{text} is not a position in a log")))
}

#[async_trait]
impl Store for ConvexStore {
    async fn append(&self, append: Append) -> Result<(), AppendError> {
        page::assert_sound(&append);
        let args = append::args(&append, &self.instance.0)?;
        let verdict: Verdict = self.deployment.mutation("append:append", &args).await?;
        append::judge(&verdict)?;
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
        let args = json!({ "instance": self.instance.0, "leaseMs": millis(lease) });
        Ok(self.deployment.mutation("owners:renew", &args).await?)
    }

    async fn leave(&self) -> Result<(), StoreError> {
        self.give_up(&self.instance.0).await
    }

    async fn others(&self) -> Result<Vec<InstanceId>, StoreError> {
        let args = json!({ "instance": self.instance.0 });
        let others: Vec<String> = self.deployment.mutation("owners:others", &args).await?;
        Ok(others.into_iter().map(InstanceId).collect())
    }

    async fn raise_fences(&self, at_least: Fence) -> Result<Fence, StoreError> {
        let args = json!({ "fence": integer(at_least.0) });
        let latest: String = self.deployment.mutation("owners:raiseFences", &args).await?;
        fence(&latest)
    }

    async fn claim(&self, conversation: &ConversationId) -> Result<Fence, ClaimError> {
        let args = json!({ "conversation": conversation.as_str(), "instance": self.instance.0 });
        loop {
            let claimed = self.deployment.mutation("owners:claim", &args).await;
            let Verdict { answer, value } = claimed.map_err(StoreError::from)?;
            match answer.as_str() {
                "yours" => return Ok(fence(&value)?),
                "held" => return Err(ClaimError::HeldBy(InstanceId(value))),
                // A removal that was interrupted: its rows must not be found in a new conversation.
                "removing" => self.remove(conversation).await?,
                other => return Err(StoreError::Broken(format!("a claim was answered with {other}")).into()),
            }
        }
    }

    async fn release(&self, conversation: &ConversationId, fence: Fence) -> Result<bool, StoreError> {
        let (fence, instance) = (integer(fence.0), &self.instance.0);
        let args = json!({ "conversation": conversation.as_str(), "fence": fence, "instance": instance });
        Ok(self.deployment.mutation("owners:release", &args).await?)
    }

    async fn send(&self, mail: Mail) -> Result<(), StoreError> {
        let args = json!({
            "id": mail.id.0,
            "conversation": mail.conversation.as_str(),
            "sender": self.instance.0,
            "body": opaque::encode(&mail.body),
        });
        Ok(self.deployment.mutation("mail:send", &args).await?)
    }

    async fn mail_waiting(&self) -> Result<Vec<ConversationId>, StoreError> {
        #[derive(Deserialize)]
        struct Step {
            found: Vec<String>,
            rest: Option<String>,
        }
        let (mut waiting, mut after) = (Vec::new(), String::new());
        loop {
            let args = json!({ "instance": self.instance.0, "after": after });
            let step: Step = self.deployment.mutation("mail:waiting", &args).await?;
            waiting.extend(step.found.into_iter().map(ConversationId::from));
            match step.rest {
                Some(rest) => after = rest,
                None => return Ok(waiting),
            }
        }
    }

    async fn mail(&self, conversation: &ConversationId) -> Result<Vec<Mail>, StoreError> {
        #[derive(Deserialize)]
        struct Letter {
            id: String,
            body: String,
        }
        let most = (MAIL_PAGE, MAIL_BYTES);
        let args = json!({ "conversation": conversation.as_str(), "most": most.0, "characters": most.1 });
        let letters: Vec<Letter> = self.deployment.mutation("mail:list", &args).await?;
        let mail = |Letter { id, body }| {
            let body = opaque::decode(&body)?;
            Ok(Mail { id: MailId(id), conversation: conversation.clone(), body })
        };
        letters.into_iter().map(mail).collect()
    }

    async fn reply(&self, mail: &MailId) -> Result<Option<Bytes>, StoreError> {
        let reply: Option<String> = self.deployment.query("mail:reply", &json!({ "id": mail.0 })).await?;
        reply.as_deref().map(opaque::decode).transpose()
    }

    async fn forget(&self, mail: &MailId) -> Result<(), StoreError> {
        let args = json!({ "id": mail.0, "sender": self.instance.0 });
        Ok(self.deployment.mutation("mail:forget", &args).await?)
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
        let (first, last) = (integer(first.0), integer(last.0));
        let args = json!({ "conversation": conversation.as_str(), "first": first, "last": last });
        self.in_steps("log:trim", &args).await
    }

    async fn delete(&self, conversation: &ConversationId) -> Result<(), StoreError> {
        let args = json!({ "conversation": conversation.as_str() });
        let () = self.deployment.mutation("removal:begin", &args).await?;
        self.shared.wakes.wake(conversation, Seq::ZERO);
        self.remove(conversation).await
    }
}
