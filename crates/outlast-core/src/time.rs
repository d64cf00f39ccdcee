//! Points in time, to the millisecond, as written in logs and documents.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

/// Milliseconds since 1970, written as `2026-01-01T00:00:00.000Z`. The core never reads a clock; callers
/// pass the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, ToSchema)]
#[schema(value_type = String, format = DateTime)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// This time plus `duration`. A duration beyond the calendar means "never".
    pub fn after(self, duration: Duration) -> Timestamp {
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Timestamp(self.0.saturating_add(millis))
    }

    /// The time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time:.3}"),
            Err(_) => f.write_str("9999-12-31T23:59:59.999Z"),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        jiff::Timestamp::deserialize(deserializer).map(|time| Timestamp(time.as_millisecond()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_reads_back_unchanged() {
        let time = Timestamp(1_767_225_600_007);
        assert_eq!(serde_json::to_string(&time).unwrap(), "\"2026-01-01T00:00:00.007Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>("\"2026-01-01T00:00:00.007Z\"").unwrap(), time);
    }

    #[test]
    fn a_delay_beyond_the_calendar_never_ends() {
        assert_eq!(Timestamp(5).after(Duration::MAX), Timestamp(i64::MAX));
    }
}
