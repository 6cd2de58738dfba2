//! Standard output, whose reader may leave at any time; tables and progress bars.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::failure::Failure;

/// Where results go. Every line is flushed: programs read them while the command runs.
pub(crate) struct Output(Box<dyn Write>);

impl Output {
    pub(crate) fn stdout() -> Self {
        Self(Box::new(io::stdout()))
    }

    pub(crate) fn line(&mut self, line: impl std::fmt::Display) -> Result<(), Failure> {
        writeln!(self.0, "{line}")?;
        Ok(self.0.flush()?)
    }

    /// One JSON value on a line of its own.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value)
            .map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))?;
        self.line(text)
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.0.write_all(bytes)?;
        Ok(self.0.flush()?)
    }
}

/// A table of two columns: what, and how much.
pub(crate) struct Facts(Table);

impl Facts {
    pub(crate) fn new() -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        Self(table)
    }

    pub(crate) fn add(&mut self, what: &str, value: impl std::fmt::Display) {
        self.0.add_row([what.to_owned(), value.to_string()]);
    }

    pub(crate) fn print(mut self, out: &mut Output) -> Result<(), Failure> {
        if let Some(column) = self.0.column_mut(0) {
            column.set_padding((0, 1));
        }
        out.line(self.0.trim_fmt())
    }
}

/// A progress bar on standard error, drawn on a terminal only.
pub(crate) fn progress(length: u64, template: &str, hidden: bool) -> ProgressBar {
    let target = if hidden || !io::stderr().is_terminal() {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::with_draw_target(Some(length), target).with_style(style.progress_chars("=> "));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// A duration, for people.
pub(crate) fn human_time(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    if micros < 1000.0 {
        format!("{micros:.0} us")
    } else if micros < 1e6 {
        format!("{:.2} ms", micros / 1e3)
    } else {
        format!("{:.2} s", micros / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_well() {
        assert_eq!(human_time(Duration::from_micros(87)), "87 us");
        assert_eq!(human_time(Duration::from_micros(1500)), "1.50 ms");
        assert_eq!(human_time(Duration::from_secs(12)), "12.00 s");
    }
}
