//! Byte counts as people write them.

/// Parses `65536`, `64KiB`, `64k`, `1g`, `1GB`: letters alone and `…iB` count in powers of 1024, `…B` in powers of
/// 1000; case does not matter.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let takes = "give bytes, or a whole number and a unit: 65536, 64KiB, 1g, 10MB";
    let number: u64 = number.parse().map_err(|_| format!("not a size; {takes}"))?;
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        other => return Err(format!("{other:?} is no unit; {takes}")),
    };
    number.checked_mul(factor).ok_or_else(|| format!("{text} is more than 2^64 bytes"))
}

/// As [`parse`], for sizes of which none makes no sense.
pub(crate) fn parse_positive(text: &str) -> Result<u64, String> {
    match parse(text)? {
        0 => Err("must be more than 0".to_owned()),
        size => Ok(size),
    }
}

/// `1.50 GiB`, for people.
pub(crate) fn human(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.2} {}", units[unit]) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_have_the_usual_units() {
        for (text, size) in [
            ("65536", 65536),
            ("64KiB", 65536),
            ("64k", 65536),
            ("1g", 1 << 30),
            ("1GiB", 1 << 30),
            ("1GB", 1_000_000_000),
            ("10 MiB", 10 << 20),
            ("0", 0),
            ("7B", 7),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(size), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_says_so() {
        for text in ["", "k", "-1", "1.5g", "64 furlongs", "0x10", "18446744073709551616", "99999999t"] {
            let error = parse(text).unwrap_err();
            assert!(!error.is_empty(), "{text}");
        }
        assert!(parse_positive("0KiB").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,30}") {
            let _ = parse(&text);
        }

        #[test]
        fn a_number_with_a_unit_is_their_product(number in 0_u64..1 << 20) {
            prop_assert_eq!(parse(&format!("{number}MiB")), Ok(number << 20));
            prop_assert_eq!(parse(&number.to_string()), Ok(number));
        }
    }
}
