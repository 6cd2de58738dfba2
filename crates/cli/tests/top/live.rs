//! The live view in a real pseudo-terminal.

use super::reporter::Reporter;
use super::support::dead_port;
use super::terminal::Terminal;

const SIZE: (u16, u16) = (30, 130);

fn start(reporter: &Reporter, environment: &[(&str, &str)]) -> Terminal {
    Terminal::start(&["top", "--interval", "0.2", &reporter.url()], SIZE, environment)
}

#[test]
fn rates_are_shown_and_each_way_out_restores_the_terminal() {
    let reporter = Reporter::start("near");
    for (way, signal) in
        [("q", false), ("\u{1b}", false), ("\u{3}", false), ("TERM", true), ("HUP", true), ("INT", true)]
    {
        let mut terminal = start(&reporter, &[]);
        terminal.wait_for("a rate", |text| text.contains("far:15000") && text.contains("MiB/s"));
        if signal {
            terminal.signal(way)
        } else {
            terminal.press(way)
        }
        let status = terminal.assert_restored();
        assert_eq!(status.code(), Some(0), "{way:?}");
    }
}

#[test]
fn a_pause_holds_the_figures_and_a_filter_leaves_rows_out() {
    let reporter = Reporter::start("near");
    let mut terminal = start(&reporter, &[]);
    terminal.wait_for("a rate", |text| text.contains("MiB/s"));
    terminal.press(" ");
    let paused = terminal.wait_for("the pause", |text| text.contains("PAUSED"));
    let asked = reporter.asked();
    while reporter.asked() < asked + 3 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let transfers = |text: &str| text.lines().find(|line| line.contains("far:15000")).unwrap().to_owned();
    assert_eq!(transfers(&terminal.text()), transfers(&paused));
    terminal.press(" ");
    terminal.wait_for("the end of the pause", |text| !text.contains("PAUSED"));

    terminal.press("/nobody");
    terminal.wait_for("no transfer", |text| text.contains("filter: nobody_") && !text.contains("write"));
    terminal.press("\u{1b}");
    terminal.wait_for("the transfer", |text| text.contains("write"));
    terminal.press("q");
    terminal.assert_restored();
}

#[test]
fn an_engine_that_is_lost_says_so_and_comes_back_by_itself() {
    let reporter = Reporter::start("near");
    let address = reporter.address();
    let mut terminal = start(&reporter, &[]);
    terminal.wait_for("a rate", |text| text.contains("MiB/s"));
    drop(reporter);
    terminal.wait_for("the reason", |text| text.contains("unreachable for") && text.contains("refused"));
    let _again = Reporter::on(address, "near");
    let text = terminal.wait_for("the engine", |text| text.contains("restarted 1x") && text.contains("64.0"));
    assert!(!text.contains("unreachable"), "{text}");
    terminal.press("q");
    terminal.assert_restored();
}

#[test]
fn a_terminal_may_change_its_size_and_be_very_narrow() {
    let reporter = Reporter::start("near");
    let mut terminal = start(&reporter, &[]);
    terminal.wait_for("every column", |text| text.contains("retries"));
    terminal.resize(12, 40);
    terminal.wait_for("few columns", |text| text.contains("far:15000") && !text.contains("retries"));
    terminal.resize(1, 3);
    terminal.resize(30, 130);
    terminal.wait_for("every column again", |text| text.contains("retries") && text.contains("far:15000"));
    terminal.press("q");
    terminal.assert_restored();
}

#[test]
fn colours_are_left_out_where_they_are_not_wanted() {
    let dead = format!("127.0.0.1:{}", dead_port());
    for (environment, colours) in [(&[][..], true), (&[("NO_COLOR", "1")], false)] {
        let mut terminal = Terminal::start(&["top", "--interval", "0.2", &dead], SIZE, environment);
        terminal.wait_for("the reason", |text| text.contains("unreachable"));
        assert_eq!(terminal.has_colours(), colours);
        terminal.press("q");
        terminal.assert_restored();
    }
}
