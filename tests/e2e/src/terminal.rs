//! A terminal in which a command runs, as a person sees it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::{PATIENCE, within};

/// The terminal, and the command in it.
#[derive(Debug)]
pub struct Terminal {
    /// The command.
    pub child: Child,
    keys: File,
    side: File,
    before: LocalModes,
    seen: Receiver<Vec<u8>>,
    /// All that was written to it.
    pub screen: String,
}

impl Terminal {
    /// Runs the command in a terminal of 80 columns and 24 lines.
    pub fn run(command: &mut Command) -> Terminal {
        // The command has its other side only: it hears if the test is gone.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let terminal = openpt(flags).expect("a terminal");
        grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("its other side");
        let name = ptsname(&terminal, Vec::new()).expect("its name");
        let name = name.into_string().expect("a plain name");
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).expect("it has a size");
        let side = File::options().read(true).write(true).open(&name);
        let side = side.expect("its other side opens");
        let before = tcgetattr(&side).expect("settings").local_modes;
        let stdio = || Stdio::from(side.try_clone().expect("descriptors"));
        let child = command
            .env("TERM", "xterm-256color")
            .stdin(stdio())
            .stdout(stdio())
            .stderr(stdio())
            .spawn()
            .expect("the command starts");
        let keys = File::from(terminal.as_fd().try_clone_to_owned().expect("descriptors"));
        let mut reader = keys.try_clone().expect("descriptors");
        let (send, seen) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = reader.read(&mut bytes) {
                if count == 0 || send.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Terminal { child, keys, side, before, seen, screen: String::new() }
    }

    /// Whether the text is written to it, soon.
    pub fn shows(&mut self, text: &str) -> bool {
        let (seen, screen) = (&self.seen, &mut self.screen);
        within(PATIENCE, || {
            let new = seen.try_iter();
            screen.extend(new.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()));
            screen.contains(text)
        })
    }

    /// Whether the command gets keys one by one.
    pub fn is_raw(&self) -> bool {
        !self.modes().contains(LocalModes::ICANON)
    }

    fn modes(&self) -> LocalModes {
        tcgetattr(&self.side).expect("settings").local_modes
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("it takes keys");
    }

    /// Checks that the command ends, and leaves the terminal as it was.
    pub fn is_left_as_it_was(&mut self) {
        let child = &mut self.child;
        let has_ended = || child.try_wait().is_ok_and(|status| status.is_some());
        assert!(within(PATIENCE, has_ended), "it ends");
        assert!(self.shows("\u{1b}[?1049l"), "it leaves the other screen: {:?}", self.screen);
        assert_eq!(self.modes(), self.before, "the terminal is as it was");
    }
}
