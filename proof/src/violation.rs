//! Violations of promises, by kind.

use std::collections::BTreeMap;
use std::fmt;

/// Which promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Acknowledged data is missing or changed (I1).
    Lost,
    /// A reader missed an event (I2).
    Gap,
    /// A reader got an event twice (I2).
    Repeat,
    /// The text differs from the upstream's (I11).
    WrongText,
    /// A generation did not end, or a reader did not reach its end (I10).
    WithoutEnd,
    /// More than one end, or something after it (I3).
    AfterEnd,
    /// A document disagrees with the log (I11).
    WrongDocument,
    /// The server refused a request that it should have accepted.
    Refused,
}

impl Kind {
    const ALL: [(Kind, &str); 8] = [
        (Kind::Lost, "acknowledged events lost"),
        (Kind::Gap, "gaps"),
        (Kind::Repeat, "repeats"),
        (Kind::WrongText, "wrong texts"),
        (Kind::WithoutEnd, "generations without an end"),
        (Kind::AfterEnd, "events after an end"),
        (Kind::WrongDocument, "documents that disagree with the log"),
        (Kind::Refused, "requests wrongly refused"),
    ];
}

#[derive(Clone, Debug)]
pub struct Violation {
    pub kind: Kind,
    /// What was observed.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.what)
    }
}

/// All violations, and how much was checked.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    pub violations: Vec<Violation>,
    /// Generations checked.
    pub generations: u64,
    /// Events in their logs.
    pub events: u64,
    /// Events that readers recorded.
    pub recorded: u64,
    /// How often readers reconnected.
    pub reconnects: u64,
    /// The length and a fingerprint of each log that was read, by conversation.
    pub logs: BTreeMap<String, (usize, u64)>,
}

impl Findings {
    /// Adds a violation.
    pub fn broke(&mut self, kind: Kind, what: impl Into<String>) {
        self.violations.push(Violation { kind, what: what.into() });
    }

    /// Adds a violation unless the condition holds.
    pub fn demand(&mut self, holds: bool, kind: Kind, what: impl FnOnce() -> String) {
        if !holds {
            self.broke(kind, what());
        }
    }

    /// Adds the findings of another check.
    pub fn add(&mut self, other: Findings) {
        self.violations.extend(other.violations);
        self.generations += other.generations;
        self.events += other.events;
        self.recorded += other.recorded;
        self.reconnects += other.reconnects;
        self.logs.extend(other.logs);
    }

    /// Fails with the first few violations, if there are any.
    pub fn clean(&self) -> anyhow::Result<()> {
        let first: Vec<String> = self.violations.iter().take(8).map(Violation::to_string).collect();
        anyhow::ensure!(first.is_empty(), "{self}\n{}", first.join("\n"));
        Ok(())
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts: BTreeMap<Kind, usize> = BTreeMap::new();
        for violation in &self.violations {
            *counts.entry(violation.kind).or_default() += 1;
        }
        let counted = Kind::ALL.map(|(kind, name)| {
            let count = counts.get(&kind).copied().unwrap_or_default();
            format!("{count} {name}")
        });
        f.write_str(&counted.join(", "))
    }
}
