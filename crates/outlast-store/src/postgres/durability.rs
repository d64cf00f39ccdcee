//! Refuses a server that could lose what it has committed.

use tokio_postgres::{Client, Error};

use crate::open::Durable;

/// The reason to refuse the server, if there is one. Asked on every new connection: a restart, a failover or a
/// changed role may change the answer.
pub(super) async fn objection(client: &Client, durable: Durable) -> Result<Option<String>, Error> {
    Ok(judge(&settings(client).await?, durable))
}

struct Settings {
    synchronous_commit: String,
    fsync: String,
    full_page_writes: String,
}

async fn settings(client: &Client) -> Result<Settings, Error> {
    let sql = "SELECT current_setting('synchronous_commit'), current_setting('fsync'), \
               current_setting('full_page_writes')";
    // Nothing is prepared: a pooler may sit in between.
    let rows = client.query_typed(sql, &[]).await?;
    let value = |n: usize| rows.first().map(|row| row.get::<_, String>(n)).unwrap_or_default();
    Ok(Settings { synchronous_commit: value(0), fsync: value(1), full_page_writes: value(2) })
}

fn judge(settings: &Settings, durable: Durable) -> Option<String> {
    for (name, value) in [("fsync", &settings.fsync), ("full_page_writes", &settings.full_page_writes)] {
        if value == "off" {
            return Some(format!(
                "PostgreSQL has {name} = off, so a crash of its machine could damage the database: switch it on"
            ));
        }
    }
    (settings.synchronous_commit == "off" && durable == Durable::AtOnce).then(|| {
        "PostgreSQL has synchronous_commit = off, so a crash could lose what was acknowledged: switch it on for \
         Outlast's user, or set durability.mode to debounce or boundary to accept that"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_weaker_durability_mode_accepts_commits_that_are_not_flushed() {
        let judged = |synchronous_commit: &str, fsync: &str, full_page_writes: &str, durable| {
            let [synchronous_commit, fsync, full_page_writes] =
                [synchronous_commit, fsync, full_page_writes].map(str::to_owned);
            judge(&Settings { synchronous_commit, fsync, full_page_writes }, durable)
        };
        for durable in [Durable::AtOnce, Durable::WithinSeconds] {
            assert_eq!(judged("on", "on", "on", durable), None);
            assert_eq!(judged("local", "on", "on", durable), None, "the server's own disk has it");
            assert!(judged("on", "off", "on", durable).unwrap().contains("fsync"));
            assert!(judged("on", "on", "off", durable).unwrap().contains("full_page_writes"));
        }
        assert!(judged("off", "on", "on", Durable::AtOnce).unwrap().contains("durability.mode"));
        assert_eq!(judged("off", "on", "on", Durable::WithinSeconds), None);
    }
}
