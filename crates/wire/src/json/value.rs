//! What the formats read their fields through: scalars of any type, objects with known keys, lists of objects.
//!
//! Reading fails only on syntax; a value of the wrong type is kept as such and judged where its field is known.
//! Values that no field wants are skipped, never stored, so memory stays in proportion to what is kept.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{JsonError, MAX_LEN, scan};

/// Reads the first value of `body`.
pub(super) fn read<T: for<'de> Deserialize<'de>>(body: &[u8]) -> Result<T, JsonError> {
    if body.len() > MAX_LEN {
        return Err(JsonError::TooLarge { len: body.len() });
    }
    let text = scan::first_value(body)?;
    T::deserialize(&mut serde_json::Deserializer::from_str(&text))
        .map_err(|error| JsonError::Syntax { message: error.to_string() })
}

/// Reads the first value of `body` as an object; `None` if it is null.
pub(crate) fn read_object<T: Object>(body: &[u8]) -> Result<Option<T>, JsonError> {
    match read::<Shape<T>>(body)? {
        Shape::Null => Ok(None),
        Shape::Object(object) => Ok(Some(object)),
        Shape::Other(found) => Err(JsonError::NotAnObject { found }),
    }
}

/// An object with a fixed set of keys that matter.
pub(crate) trait Object: Default {
    /// The keys; all others are skipped.
    const KEYS: &'static [&'static str];

    /// Reads the value of `key`, one of `KEYS`, from `map`. Called again for a duplicate: the last value stays.
    fn read<'de, A: MapAccess<'de>>(&mut self, key: &'static str, map: &mut A) -> Result<(), A::Error>;
}

/// A value where an object is wanted.
#[derive(Default)]
pub(crate) enum Shape<T> {
    /// Null, or the key is absent.
    #[default]
    Null,
    Object(T),
    /// Something else, and what.
    Other(&'static str),
}

impl<T> Shape<T> {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Object(_) => "an object",
            Self::Other(found) => found,
        }
    }

    /// The object; `None` if absent or null.
    pub(crate) fn object(self, field: &'static str) -> Result<Option<T>, JsonError> {
        match self {
            Self::Null => Ok(None),
            Self::Object(object) => Ok(Some(object)),
            Self::Other(found) => Err(JsonError::WrongType { field, expected: "an object", found }),
        }
    }
}

impl<'de, T: Object> Deserialize<'de> for Shape<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShapeVisitor(PhantomData))
    }
}

struct ShapeVisitor<T>(PhantomData<T>);

impl<'de, T: Object> Visitor<'de> for ShapeVisitor<T> {
    type Value = Shape<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Shape::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Shape::Other("a boolean"))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Shape::Other("a number"))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Shape::Other("a number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Shape::Other("a number"))
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Shape::Other("a string"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        skip_seq(seq)?;
        Ok(Shape::Other("an array"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut object = T::default();
        while let Some(key) = map.next_key_seed(KnownKey(T::KEYS))? {
            match key {
                Some(key) => object.read(key, &mut map)?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Shape::Object(object))
    }
}

/// Reads a key to the equal one of a list, so that no key is allocated.
struct KnownKey(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for KnownKey {
    type Value = Option<&'static str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KnownKey {
    type Value = Option<&'static str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().find(|known| **known == key).copied())
    }
}

/// A value where a string or a number is wanted.
#[derive(Default)]
pub(crate) enum Scalar {
    /// Null, or the key is absent.
    #[default]
    Null,
    Bool(bool),
    Unsigned(u64),
    Negative(i64),
    Float(f64),
    Text(String),
    /// An array or an object, and which.
    Compound(&'static str),
}

impl Scalar {
    /// As a string: null is "", numbers and booleans are written out.
    pub(crate) fn text(self, field: &'static str) -> Result<String, JsonError> {
        match self {
            Self::Null => Ok(String::new()),
            Self::Bool(value) => Ok(value.to_string()),
            Self::Unsigned(value) => Ok(value.to_string()),
            Self::Negative(value) => Ok(value.to_string()),
            Self::Float(value) => Ok(format!("{value:?}")),
            Self::Text(text) => Ok(text),
            Self::Compound(found) => Err(JsonError::WrongType { field, expected: "a string", found }),
        }
    }

    /// As a number in `0..=max`; `None` if absent or null. Never truncated.
    pub(crate) fn number(&self, field: &'static str, max: u64) -> Result<Option<u64>, JsonError> {
        /// Whole numbers are exact in a double up to here.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        let wrong = |found| Err(JsonError::WrongType { field, expected: "a number", found });
        let outside = |value: String| Err(JsonError::OutOfRange { field, value, max });
        let value = match self {
            Self::Null => return Ok(None),
            Self::Unsigned(value) => *value,
            Self::Negative(value) => return outside(value.to_string()),
            Self::Float(value) if (0.0..=EXACT).contains(value) && value.fract() == 0.0 => *value as u64,
            Self::Float(value) => return outside(format!("{value:?}")),
            Self::Bool(_) => return wrong("a boolean"),
            Self::Text(_) => return wrong("a string"),
            Self::Compound(found) => return wrong(found),
        };
        if value > max { outside(value.to_string()) } else { Ok(Some(value)) }
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Scalar, E> {
        Ok(Scalar::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
        Ok(Scalar::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Scalar, E> {
        Ok(Scalar::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Scalar, E> {
        // The parser hands only negative numbers to this method.
        Ok(u64::try_from(value).map_or(Scalar::Negative(value), Scalar::Unsigned))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Scalar, E> {
        Ok(Scalar::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Scalar, A::Error> {
        skip_seq(seq)?;
        Ok(Scalar::Compound("an array"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Compound("an object"))
    }
}

/// An element of a [`List`].
pub(crate) trait ListItem: Sized {
    /// What an element is read as.
    type Raw: for<'de> Deserialize<'de>;
    /// Why an element is not good.
    type Fault;

    /// Judges what was read.
    fn judge(raw: Self::Raw) -> Result<Self, Self::Fault>;
}

/// A value where an array is wanted. Each element is judged as it is read, and only good ones are stored.
pub(crate) struct List<T: ListItem> {
    pub(crate) items: Vec<T>,
    /// The first bad element and its index.
    pub(crate) fault: Option<(usize, T::Fault)>,
    /// Not an array at all, but this.
    other: Option<&'static str>,
}

impl<T: ListItem> List<T> {
    /// Refuses what is not an array; absent and null are empty.
    pub(crate) fn array(self, field: &'static str) -> Result<Self, JsonError> {
        match self.other {
            None => Ok(self),
            Some(found) => Err(JsonError::WrongType { field, expected: "an array", found }),
        }
    }

    fn not_an_array(found: &'static str) -> Self {
        Self { other: Some(found), ..Self::default() }
    }
}

impl<T: ListItem> Default for List<T> {
    fn default() -> Self {
        Self { items: Vec::new(), fault: None, other: None }
    }
}

impl<'de, T: ListItem> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListVisitor(PhantomData))
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: ListItem> Visitor<'de> for ListVisitor<T> {
    type Value = List<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(List::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(List::not_an_array("a boolean"))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(List::not_an_array("a number"))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(List::not_an_array("a number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(List::not_an_array("a number"))
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(List::not_an_array("a string"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(List::not_an_array("an object"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut list = List::default();
        let mut index = 0;
        while let Some(raw) = seq.next_element()? {
            match T::judge(raw) {
                Ok(value) => list.items.push(value),
                Err(fault) => list.fault = list.fault.or(Some((index, fault))),
            }
            index += 1;
        }
        Ok(list)
    }
}

fn skip_seq<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<(), A::Error> {
    while seq.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}
