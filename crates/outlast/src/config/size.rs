//! Sizes as people write them: `512KiB`, `64MiB`, `2GiB`, or a number of bytes.

use serde::{Deserialize, Deserializer};

/// The units, largest first.
const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Bytes(u64),
        Text(String),
    }
    let wrong = || serde::de::Error::custom("not a size like 512KiB, 64MiB or 2GiB");
    match Written::deserialize(deserializer).map_err(|_| wrong())? {
        Written::Bytes(bytes) => Ok(bytes),
        Written::Text(text) => parse(&text).ok_or_else(wrong),
    }
}

#[cfg(test)]
pub(super) fn serialize<S: serde::Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    let unit = UNITS.into_iter().find(|(_, unit)| bytes.is_multiple_of(*unit));
    let (unit, size) = unit.expect("every number of bytes is divisible by 1");
    serializer.serialize_str(&format!("{}{unit}", bytes / size))
}

fn parse(text: &str) -> Option<u64> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (count, unit) = text.split_at(digits);
    let size = match unit {
        "" => 1,
        unit => UNITS.into_iter().find(|(name, _)| *name == unit)?.1,
    };
    count.parse::<u64>().ok()?.checked_mul(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_number_and_a_unit() {
        for (text, bytes) in [("512KiB", 512 << 10), ("2GiB", 2 << 30), ("7B", 7), ("12", 12)] {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
        for text in ["", "GiB", "2 GiB", "2gb", "-1B", "99999999999GiB"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
