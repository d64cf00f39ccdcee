//! What an operator sees: what runs, waits and fails, of all users. Ids, times and codes; nothing that anyone wrote.

use outlast_core::{ConversationId, GenerationDocument, GenerationId, GenerationStatus, Timestamp, UserId};
use outlast_engine::{AboutInstance, Instance};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::caller::{Admin, Caller};
use super::error::Problem;

/// How many generations of each kind are shown.
const SHOWN: usize = 50;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(overview))
}

/// The state of the server.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Overview {
    /// The version of the server and its commit.
    #[schema(value_type = String)]
    version: &'static str,
    started_at: Timestamp,
    /// The kind of store.
    store: String,
    /// The name of this instance, among those that share the store.
    instance: String,
    /// Generations that this instance runs or has queued.
    live: usize,
    /// Conversations that have a task in this instance.
    owners: usize,
    /// Streams of events that are followed at this instance.
    followers: i64,
    /// Open connections of this instance.
    connections: i64,
    /// The servers that share the store: this one first, then the others, and those that died in the last day.
    instances: Vec<InstanceBody>,
    /// Since this instance started.
    resumes: ResumeFigures,
    /// The newest generations that run or are queued.
    running: Vec<Seen>,
    /// The newest generations that wait for a person's decision.
    waiting: Vec<Seen>,
    /// The newest generations that wait for a person to resume them.
    interrupted: Vec<Seen>,
    /// The newest generations that failed.
    failed: Vec<Seen>,
}

/// A server. What it holds is as of a few seconds ago.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Instance)]
struct InstanceBody {
    instance: String,
    /// Whether it has a valid lease. What a server without one held is taken over by the others.
    has_lease: bool,
    /// Absent, like the fields below, if the server has not said anything about itself yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    started_at: Option<Timestamp>,
    /// Generations that it runs or has queued.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    live: Option<usize>,
    /// Conversations that have a task there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    owners: Option<usize>,
    /// Streams of events that are followed there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    followers: Option<i64>,
}

impl From<Instance> for InstanceBody {
    fn from(one: Instance) -> InstanceBody {
        let about = one.about.as_ref();
        InstanceBody {
            instance: one.id,
            has_lease: one.has_lease,
            live: about.map(|about| about.live),
            owners: about.map(|about| about.owners),
            followers: about.map(|about| about.followers),
            started_at: about.map(|about| about.started_at),
            version: one.about.map(|about| about.version),
        }
    }
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ResumeFigures {
    /// Generations that stopped in the middle and waited for a person.
    interruptions: u64,
    /// Generations that continued after an interruption or a restart.
    resumes: u64,
    /// Those of them that were completed.
    completed: u64,
    /// Those of them that failed.
    failed: u64,
}

/// A generation of any user, without anything that was said in it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Seen {
    #[schema(value_type = String)]
    generation_id: GenerationId,
    #[schema(value_type = String)]
    conversation_id: ConversationId,
    user: String,
    status: GenerationStatus,
    model: String,
    /// The current attempt.
    attempt: u32,
    #[schema(required)]
    started_at: Option<Timestamp>,
    #[schema(required)]
    completed_at: Option<Timestamp>,
    /// The code of a failure.
    #[schema(required)]
    end_reason: Option<String>,
}

impl From<(UserId, GenerationDocument)> for Seen {
    fn from((user, document): (UserId, GenerationDocument)) -> Seen {
        Seen {
            generation_id: document.id,
            conversation_id: document.conversation_id,
            user: user.as_str().to_owned(),
            status: document.status,
            model: document.brief.model,
            attempt: document.attempt,
            started_at: document.started_at,
            completed_at: document.completed_at,
            end_reason: document.end_reason,
        }
    }
}

/// What runs, waits and fails
///
/// Of all users, for a key with the scope `admin`: ids, times and codes, and nothing that anyone wrote.
#[utoipa::path(get, path = "/v1/admin/overview", operation_id = "getOverview", tag = "Server",
    security(("key" = ["admin"])),
    responses((status = 200, body = Overview, description = "The state of the server.")))]
async fn overview(caller: Caller<Admin>) -> Result<axum::Json<Overview>, Problem> {
    use GenerationStatus as Status;
    let (engine, app) = (caller.engine(), caller.app());
    let newest = async |statuses: &[Status]| -> Result<Vec<Seen>, Problem> {
        Ok(engine.newest_of_all_users(statuses, SHOWN).await?.into_iter().map(Seen::from).collect())
    };
    let this = engine.about(crate::cli::VERSION, app.started_at());
    let instances = engine.instances(this.clone()).await?;
    let figures = engine.figures();
    let resumes = figures.resumes();
    let AboutInstance { live, owners, followers, .. } = this;
    Ok(axum::Json(Overview {
        version: crate::cli::VERSION,
        started_at: app.started_at(),
        store: app.store().to_owned(),
        instance: engine.instance().to_owned(),
        live,
        owners,
        followers,
        connections: app.figures().connections.get(),
        instances: instances.into_iter().map(InstanceBody::from).collect(),
        resumes: ResumeFigures {
            interruptions: resumes.interruptions,
            resumes: resumes.resumes,
            completed: resumes.completed,
            failed: resumes.failed,
        },
        running: newest(&[Status::Running, Status::Queued]).await?,
        waiting: newest(&[Status::AwaitingApproval, Status::Paused]).await?,
        interrupted: newest(&[Status::Interrupted]).await?,
        failed: newest(&[Status::Error]).await?,
    }))
}
