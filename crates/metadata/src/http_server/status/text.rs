//! Text and figures for people. Escaping for HTML is the template's.

/// What somebody else wrote, as one short line: without control characters, nor those that turn the direction of writing.
pub(super) fn plain(text: &str, longest: usize) -> String {
    let hides = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    let mut short: String =
        text.chars().take(longest).map(|c| if hides(c) { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(longest).is_some() {
        short.push('…');
    }
    short
}

const UNITS: [(&str, &str); 6] =
    [("B", "B/s"), ("KiB", "KiB/s"), ("MiB", "MiB/s"), ("GiB", "GiB/s"), ("TiB", "TiB/s"), ("PiB", "PiB/s")];

/// `0 B`, `17 B`, `1.50 MiB`.
pub(super) fn bytes(count: f64) -> String {
    let unit = unit_of(count);
    let value = count / 1024f64.powi(unit as i32);
    let digits = match (unit, value) {
        (0, _) => 0,
        (_, value) if value < 10.0 => 2,
        (_, value) if value < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", UNITS[unit].0)
}

/// `1.50 MiB/s`.
pub(super) fn speed(rate: f64) -> String {
    format!("{}/s", bytes(rate))
}

/// What a rate of this many bytes a second is told in: how many bytes a second that is, and its name.
pub(super) fn byte_unit(rate: f64) -> (f64, &'static str) {
    let unit = unit_of(rate);
    (1024f64.powi(unit as i32), UNITS[unit].1)
}

fn unit_of(count: f64) -> usize {
    let fits = |unit: &usize| count < 1024f64.powi(*unit as i32 + 1);
    (0..UNITS.len()).find(fits).unwrap_or(UNITS.len() - 1)
}

/// `3 s`, `2 min`, `5 h`, `3 d`.
pub(super) fn span(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// `850 µs`, `1.2 ms`, `3.4 s`.
pub(super) fn latency(microseconds: f64) -> String {
    match microseconds {
        us if us < 10.0 => format!("{us:.1} µs"),
        us if us < 1000.0 => format!("{us:.0} µs"),
        us if us < 1e6 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

/// The time of day in UTC, of milliseconds since 1970.
pub(super) fn time_of_day(ms: u64) -> String {
    let seconds = ms / 1000;
    format!("{:02}:{:02}:{:02}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}

/// `1 segment`, `2 segments`.
pub(super) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        let all = [0.0, 17.0, 1024.0, 1.5 * 1048576.0, 200.0 * 1048576.0, 1e30].map(bytes);
        assert_eq!(all[..5], ["0 B", "17 B", "1.00 KiB", "1.50 MiB", "200 MiB"]);
        assert!(all[5].ends_with("PiB"));
        assert_eq!([119, 120, 7200, 200_000].map(span), ["119 s", "2 min", "2 h", "2 d"]);
        assert_eq!([3.25, 850.0, 1234.0, 2.5e6].map(latency), ["3.2 µs", "850 µs", "1.2 ms", "2.5 s"]);
        assert_eq!(time_of_day(1_796_078_265_999), "22:37:45");
    }

    #[test]
    fn what_others_wrote_is_one_short_line() {
        assert_eq!(plain("a\nb\u{202e}c\u{7}", 10), "a\u{fffd}b\u{fffd}c\u{fffd}");
        assert_eq!(plain("äöü", 2), "äö…");
        assert_eq!(plain("<b>", 9), "<b>", "escaping is not done here");
    }
}
