//! A program in a pseudo-terminal of its own, and what its screen shows.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use super::support::{moonrail, signal};

const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Terminal {
    child: Child,
    master: File,
    slave: File,
    screen: Arc<Mutex<vt100::Parser>>,
    before: Termios,
}

impl Terminal {
    /// Starts `moonrail ARGS` on a screen of this size.
    pub(crate) fn start(args: &[&str], (rows, columns): (u16, u16), environment: &[(&str, &str)]) -> Self {
        let master: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        resize(&master, rows, columns);
        let name = std::ffi::OsString::from_vec(ptsname(&master, Vec::new()).unwrap().into_bytes());
        let slave = File::options().read(true).write(true).open(name).unwrap();
        let before = tcgetattr(&slave).unwrap();
        let inner = moonrail(args);
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(inner.get_program()).args(inner.get_args());
        command.env("TERM", "xterm-256color").env_remove("NO_COLOR").envs(environment.iter().copied());
        let own = || slave.try_clone().unwrap();
        let child = command.stdin(own()).stdout(own()).stderr(own()).spawn().unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let (mut output, shown) = (File::from(master.try_clone().unwrap()), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(got @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..got]);
            }
        });
        Self { child, master: File::from(master), slave, screen, before }
    }

    pub(crate) fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Waits until the screen is as wanted; returns it.
    pub(crate) fn wait_for(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let text = self.text();
            if wanted(&text) {
                return text;
            }
            assert!(Instant::now() < until, "{what} did not come:\n{text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        self.screen.lock().unwrap().screen_mut().set_size(rows, columns);
        resize(&self.master, rows, columns);
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    pub(crate) fn has_colours(&self) -> bool {
        let parser = self.screen.lock().unwrap();
        let screen = parser.screen();
        let (rows, columns) = screen.size();
        let mut cells =
            (0..rows).flat_map(|row| (0..columns).filter_map(move |column| screen.cell(row, column)));
        cells.any(|cell| cell.fgcolor() != vt100::Color::Default)
    }

    /// Waits for its end, and checks that the terminal is as it was before.
    pub(crate) fn assert_restored(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "it goes on:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        };
        let after = tcgetattr(&self.slave).unwrap();
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
        let back = || {
            let parser = self.screen.lock().unwrap();
            !parser.screen().alternate_screen() && !parser.screen().hide_cursor()
        };
        while !back() {
            assert!(Instant::now() < until, "the screen was not given back:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
        status
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn resize(terminal: impl std::os::fd::AsFd, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).unwrap();
}
