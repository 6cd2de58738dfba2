//! Which trace and span something is part of, as W3C Trace Context writes it.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A span of a trace: what a `traceparent` header names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// The trace.
    pub trace_id: [u8; 16],
    /// The span in it.
    pub span_id: [u8; 8],
    /// Bit 0: the trace is recorded.
    pub flags: u8,
}

/// A text that is no `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "no traceparent: it is 00-TRACE-SPAN-FLAGS with 32, 16 and 2 lower-case hex digits, and not all of them 0"
)]
pub struct BadTraceparent;

impl TraceContext {
    /// Whether both ids name something: all zeros do not.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.trace_id != [0; 16] && self.span_id != [0; 8]
    }
}

impl FromStr for TraceContext {
    type Err = BadTraceparent;

    /// Takes version 00, and of later versions what they share with it.
    fn from_str(text: &str) -> Result<Self, BadTraceparent> {
        let mut fields = text.split('-');
        let mut field = || fields.next().ok_or(BadTraceparent);
        let [version] = hex(field()?)?;
        let context =
            Self { trace_id: hex(field()?)?, span_id: hex(field()?)?, flags: hex::<1>(field()?)?[0] };
        let longer = fields.next().is_some();
        if version == 0xff || (version == 0 && longer) || !context.is_valid() {
            return Err(BadTraceparent);
        }
        Ok(context)
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (u128::from_be_bytes(self.trace_id), u64::from_be_bytes(self.span_id));
        write!(f, "00-{trace:032x}-{span:016x}-{:02x}", self.flags)
    }
}

/// Exactly `2 * N` lower-case digits.
fn hex<const N: usize>(text: &str) -> Result<[u8; N], BadTraceparent> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(BadTraceparent),
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return Err(BadTraceparent);
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Ok(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_header_of_the_recommendation_round_trips() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context: TraceContext = text.parse().unwrap();
        assert_eq!((context.trace_id[0], context.span_id[7], context.flags), (0x0a, 0x31, 1));
        assert_eq!(context.to_string(), text);
        assert_eq!(text.replacen("00", "cc", 1).parse(), Ok(context));
        assert_eq!(format!("{}-more", text.replacen("00", "cc", 1)).parse(), Ok(context));
    }

    #[test]
    fn what_is_none_is_an_error() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        for bad in [
            String::new(),
            good.to_uppercase(),
            good[1..].to_owned(),
            format!("{good}-more"),
            good.replacen("00", "ff", 1),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01".to_owned(),
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01".to_owned(),
            "00-0af7651916cd43dd8448eb211c80319\u{e9}-b7ad6b7169203331-01".to_owned(),
        ] {
            assert_eq!(bad.parse::<TraceContext>(), Err(BadTraceparent), "{bad}");
        }
    }
}
