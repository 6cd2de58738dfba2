//! The screen that goes on until the user has seen enough.
//!
//! Owns the terminal while it runs: it is given back as it was on every way out, a panic or a signal too.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use super::choice::{Choice, Sort};
use super::fetch::{Listing, News, Watch};
use super::model::Model;
use super::view::Scene;
use super::{Args, colours};
use crate::failure::Failure;

/// How long keys are waited for before signals and news are looked at.
const TICK: Duration = Duration::from_millis(100);
/// Ages are drawn anew this often, even where nothing else changes.
const REDRAW: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let ended = ending_signals()?;
    let (sender, news) = channel();
    let mut watch = Watch::new(args.interval, sender);
    for at in &args.engines {
        watch.follow(at)?;
    }
    if let Some(metadata) = &args.metadata {
        watch.list(Listing::new(metadata)?)?;
    }
    let mut screen = Screen::new(args);
    let mut terminal = Terminal::take()?;
    let mut drawn: Option<Instant> = None;
    while !screen.over && !ended.load(Ordering::Relaxed) {
        let mut changed = screen.take(&news, &mut watch)?;
        changed |= drawn.is_none_or(|drawn| drawn.elapsed() >= REDRAW);
        if changed {
            screen.draw(&mut terminal.0).map_err(|error| lost(&error))?;
            drawn = Some(Instant::now());
        }
        if event::poll(TICK).map_err(|error| lost(&error))? {
            screen.handle(&event::read().map_err(|error| lost(&error))?);
            drawn = None;
        }
    }
    Ok(())
}

/// Set by the signals that end programs. A terminal that is gone sends one too.
fn ending_signals() -> Result<Arc<AtomicBool>, Failure> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register(signal, Arc::clone(&ended))
            .map_err(|error| Failure::failed(format!("cannot watch for signals: {error}")))?;
    }
    Ok(ended)
}

fn lost(error: &io::Error) -> Failure {
    Failure::failed(format!("the terminal cannot be used: {error}")).fix("give --once for one plain table")
}

/// The terminal in raw mode and on its other screen, until this is dropped. A panic gives it back before it is told of.
struct Terminal(DefaultTerminal);

impl Terminal {
    fn take() -> Result<Self, Failure> {
        match ratatui::try_init() {
            Ok(terminal) => Ok(Self(terminal)),
            Err(error) => {
                ratatui::restore();
                Err(lost(&error))
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// What is shown, and what the user wants of it.
struct Screen {
    model: Model,
    choice: Choice,
    interval: Duration,
    colours: bool,
    paused: bool,
    typing: bool,
    scroll: usize,
    over: bool,
}

impl Screen {
    fn new(args: &Args) -> Self {
        Self {
            model: Model::new(&args.engines),
            choice: args.choice(),
            interval: args.interval,
            colours: colours(),
            paused: false,
            typing: false,
            scroll: 0,
            over: false,
        }
    }

    /// Takes what the threads found out; whether there was anything. While paused, answers are dropped: the rates after it are
    /// those of the whole time.
    fn take(&mut self, news: &Receiver<News>, watch: &mut Watch) -> Result<bool, Failure> {
        let mut any = false;
        for item in news.try_iter() {
            any = true;
            match item {
                News::Answer(..) if self.paused => {}
                News::Answer(at, outcome) => {
                    self.model.take(&at, outcome.map(|report| *report), Instant::now())
                }
                News::Listed(Err(why)) => self.model.trouble = Some(why),
                News::Listed(Ok(listed)) => {
                    self.model.trouble = None;
                    self.model.announce(&listed);
                    watch.keep(|at| self.model.knows(at));
                    listed.iter().try_for_each(|at| watch.follow(at))?;
                }
            }
        }
        Ok(any)
    }

    fn draw(&self, terminal: &mut DefaultTerminal) -> io::Result<()> {
        let engines = self.model.engines(Instant::now());
        let rows = self.choice.apply(self.model.rows());
        let failures = self.model.failures();
        let scene = Scene {
            engines: &engines,
            rows: &rows,
            failures: &failures,
            trouble: self.model.trouble.as_deref(),
            choice: &self.choice,
            paused: self.paused,
            typing: self.typing,
            scroll: self.scroll,
            interval: self.interval,
            colours: self.colours,
        };
        terminal.draw(|frame| scene.draw(frame)).map(drop)
    }

    fn handle(&mut self, event: &Event) {
        let Event::Key(key) = event else { return };
        if key.kind == KeyEventKind::Release {
            return;
        }
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            self.over = true;
        } else if self.typing {
            self.edit(key);
        } else {
            self.command(key);
        }
    }

    fn edit(&mut self, key: &KeyEvent) {
        match key.code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.choice.filter.clear();
            }
            KeyCode::Backspace => drop(self.choice.filter.pop()),
            KeyCode::Char(c) if !c.is_control() => self.choice.filter.push(c),
            _ => {}
        }
        self.scroll = 0;
    }

    fn command(&mut self, key: &KeyEvent) {
        let last = self.choice.apply(self.model.rows()).len().saturating_sub(1);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => self.over = true,
            KeyCode::Char(' ' | 'p') => self.paused = !self.paused,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char('s') => self.choice.sort = self.choice.sort.next(),
            KeyCode::Char('r') => self.choice.reversed = !self.choice.reversed,
            KeyCode::Char(c) => self.choice.sort = Sort::of_key(c).unwrap_or(self.choice.sort),
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down => self.scroll = (self.scroll + 1).min(last),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::PageDown => self.scroll = (self.scroll + 10).min(last),
            KeyCode::Home => self.scroll = 0,
            KeyCode::End => self.scroll = last,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen() -> Screen {
        Screen {
            model: Model::default(),
            choice: Choice::default(),
            interval: REDRAW,
            colours: false,
            paused: false,
            typing: false,
            scroll: 0,
            over: false,
        }
    }

    fn press(screen: &mut Screen, keys: &[KeyCode]) {
        for code in keys {
            screen.handle(&Event::Key(KeyEvent::new(*code, KeyModifiers::NONE)));
        }
    }

    #[test]
    fn keys_do_what_the_last_line_says() {
        let mut screen = screen();
        press(&mut screen, &[KeyCode::Char('f'), KeyCode::Char('r'), KeyCode::Char(' ')]);
        assert_eq!((screen.choice.sort, screen.choice.reversed, screen.paused), (Sort::Failures, true, true));
        press(&mut screen, &[KeyCode::Char('s'), KeyCode::Char('p'), KeyCode::Down, KeyCode::Char('!')]);
        assert_eq!((screen.choice.sort, screen.paused, screen.scroll), (Sort::Queue, false, 0));
        assert!(!screen.over);
        press(&mut screen, &[KeyCode::Char('q')]);
        assert!(screen.over);
    }

    #[test]
    fn while_a_filter_is_typed_letters_are_letters() {
        let mut screen = screen();
        press(&mut screen, &[KeyCode::Char('/'), KeyCode::Char('q'), KeyCode::Char('x'), KeyCode::Backspace]);
        assert!(screen.typing && !screen.over);
        press(&mut screen, &[KeyCode::Enter]);
        assert_eq!((screen.typing, screen.choice.filter.as_str()), (false, "q"));
        press(&mut screen, &[KeyCode::Char('/'), KeyCode::Esc]);
        assert_eq!((screen.over, screen.choice.filter.as_str()), (false, ""));
        screen.handle(&Event::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(screen.over);
    }
}
