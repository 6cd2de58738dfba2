//! Lenient reading of JSON, as genuine peers read it (Mooncake TE wire, accepted leniencies).
//!
//! Owns what is tolerated and the limits. Parsing itself is `serde_json`'s; the formats are in the sibling modules.
//!
//! Tolerated: comments, anything behind the first value, duplicate keys (the last wins), unknown keys, `\u0000`,
//! invalid UTF-8 (becomes U+FFFD), numbers and booleans where a string belongs, null for "absent".

mod scan;
mod value;

pub(crate) use value::{List, ListItem, Object, Scalar, Shape, read_object};

/// Deepest nesting read. Genuine messages need 5.
pub const MAX_DEPTH: usize = 64;

/// Longest body read, bytes: the largest frame that a genuine peer can be set to.
pub const MAX_LEN: usize = 128 << 20;

/// A JSON body that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// Longer than [`MAX_LEN`].
    #[error("JSON of {len} bytes, more than {MAX_LEN}")]
    TooLarge {
        /// Bytes given.
        len: usize,
    },
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("JSON nested deeper than {MAX_DEPTH}")]
    TooDeep,
    /// Not JSON.
    #[error("malformed JSON: {message}")]
    Syntax {
        /// What the parser says, with line and column.
        message: String,
    },
    /// JSON, but neither an object nor null.
    #[error("expected a JSON object, found {found}")]
    NotAnObject {
        /// What was found, such as "an array".
        found: &'static str,
    },
    /// A known field holds a value of a type that it cannot have.
    #[error("JSON field \"{field}\": expected {expected}, found {found}")]
    WrongType {
        /// The key.
        field: &'static str,
        /// What belongs there.
        expected: &'static str,
        /// What was found.
        found: &'static str,
    },
    /// A number that does not fit its field.
    #[error("JSON field \"{field}\": {value} is not a whole number in 0..={max}")]
    OutOfRange {
        /// The key.
        field: &'static str,
        /// The number, as text.
        value: String,
        /// The largest value allowed.
        max: u64,
    },
}

/// Checks that `body` starts with a JSON object or null, which is all that a server needs to know of a request
/// whose body it ignores.
///
/// # Errors
/// Any [`JsonError`] but those about fields.
pub fn check_object(body: &[u8]) -> Result<(), JsonError> {
    read_object::<Nothing>(body).map(drop)
}

/// Reads any JSON value and says what it is: "an object", "an array", "null", "a string", "a number", "a boolean".
///
/// # Errors
/// [`JsonError::TooLarge`], [`JsonError::TooDeep`], [`JsonError::Syntax`].
pub fn shape_of(body: &[u8]) -> Result<&'static str, JsonError> {
    value::read::<Shape<Nothing>>(body).map(|shape| shape.name())
}

/// Compact JSON with a final newline, as genuine handshake messages are written.
pub(crate) fn line(value: &impl serde::Serialize, size_hint: usize) -> Vec<u8> {
    let mut bytes = compact(value, size_hint);
    bytes.push(b'\n');
    bytes
}

/// Compact JSON without a newline, as genuine engines put it into an HTTP metadata server.
pub(crate) fn compact(value: &impl serde::Serialize, size_hint: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_hint);
    serde_json::to_writer(&mut bytes, value).expect(
        "invariant: a Vec takes any write, and our types hold only strings, integers, lists and structs",
    );
    bytes
}

/// An object of which no field is wanted.
#[derive(Default)]
struct Nothing;

impl Object for Nothing {
    const KEYS: &'static [&'static str] = &[];

    fn read<'de, A: serde::de::MapAccess<'de>>(
        &mut self,
        _: &'static str,
        map: &mut A,
    ) -> Result<(), A::Error> {
        map.next_value::<serde::de::IgnoredAny>().map(drop)
    }
}
