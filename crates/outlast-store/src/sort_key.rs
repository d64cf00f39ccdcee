//! Sort keys for databases that compare text.

/// A number as sixteen hexadecimal digits that sort like it.
pub(crate) fn sortable(number: i64) -> String {
    format!("{:016x}", number.cast_unsigned() ^ (1 << 63))
}

pub(crate) fn from_sortable(text: &str) -> Option<i64> {
    Some((u64::from_str_radix(text, 16).ok()? ^ (1 << 63)).cast_signed())
}
