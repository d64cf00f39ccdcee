//! Durations as people write them: `500ms`, `300s`, `5m`, `24h`, `7d`.

use std::time::Duration;

use serde::{Deserialize, Deserializer};

/// The units, longest first.
const UNITS_MS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    // The text is not repeated, because it may be a key that somebody put in the wrong place.
    parse(&text).ok_or_else(|| serde::de::Error::custom("not a duration like 500ms, 300s, 5m, 24h or 7d"))
}

pub(super) fn deserialize_some<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    deserialize(deserializer).map(Some)
}

/// Uses the largest unit that gives a whole number.
#[cfg(test)]
pub(super) fn serialize<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    let ms = u64::try_from(duration.as_millis()).expect("a default is less than a million years");
    let unit = UNITS_MS.into_iter().find(|(_, unit_ms)| ms % unit_ms == 0);
    let (unit, unit_ms) = unit.expect("every number of milliseconds is divisible by 1");
    serializer.serialize_str(&format!("{}{unit}", ms / unit_ms))
}

pub(crate) fn parse(text: &str) -> Option<Duration> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (count, unit) = text.split_at(digits);
    let (_, unit_ms) = UNITS_MS.into_iter().find(|(name, _)| *name == unit)?;
    count.parse::<u64>().ok()?.checked_mul(unit_ms).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_and_a_unit() {
        for (text, ms) in [("500ms", 500), ("300s", 300_000), ("5m", 300_000), ("24h", 86_400_000), ("0s", 0)]
        {
            assert_eq!(parse(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for text in
            ["", "90", "h", "5 m", "5m ", "-5m", "1.5h", "5min", "99999999999999999999d", "9999999999999999d"]
        {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
