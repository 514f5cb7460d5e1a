//! A session that a client of some release has begun, kept as a text: what the client sent on the
//! connection of its commands, and what the server of its release answered.

use std::fmt::Write as _;

use outboard_wire::frame::{CommandHeader, LINK_OPS, flags};

use crate::{RawClient, Recording, Server};

/// A session, without what acknowledges answers: whoever says it again gets others.
#[derive(Debug, Clone)]
pub struct Replay {
    hello: Vec<u8>,
    /// Each with its header.
    pub commands: Vec<Vec<u8>>,
    /// What came of those that are answered, in their order.
    answers: Vec<Answer>,
}

/// A command's `CUresult`, and its payload unless that is another one each time.
#[derive(Debug, Clone, PartialEq)]
struct Answer {
    status: u32,
    payload: Option<Vec<u8>>,
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal digits")).collect()
}

fn header(command: &[u8]) -> CommandHeader {
    let head = command.first_chunk().expect("a command has a header");
    CommandHeader::decode(head).expect("a header")
}

impl Replay {
    /// What a program has said, with what its server says to it twice.
    pub fn of(recording: &Recording, server: &Server) -> Replay {
        let (hello, mut rest) = recording.bytes.split_at(recording.hello);
        let mut commands = Vec::new();
        while !rest.is_empty() {
            let size = CommandHeader::SIZE + header(rest).len as usize;
            let (command, behind) = rest.split_at(size);
            if header(command).op < LINK_OPS {
                commands.push(command.to_vec());
            }
            rest = behind;
        }
        let mut replay = Replay { hello: hello.to_vec(), commands, answers: Vec::new() };
        let say =
            |replay: &Replay| replay.say(server).expect("the server of the recording knows it");
        let (first, second) = (say(&replay), say(&replay));
        let same = |(one, other): (Answer, Answer)| {
            assert_eq!(one.status, other.status, "it is the same each time");
            let payload = if one.payload == other.payload { one.payload } else { None };
            Answer { status: one.status, payload }
        };
        replay.answers = first.into_iter().zip(second).map(same).collect();
        replay
    }

    /// Reads the text.
    pub fn parse(text: &str) -> Replay {
        let mut replay = Replay { hello: Vec::new(), commands: Vec::new(), answers: Vec::new() };
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["hello", hello] => replay.hello = bytes(hello),
                ["command", command] => replay.commands.push(bytes(command)),
                ["answer", status, payload] => replay.answers.push(Answer {
                    status: status.parse().expect("a number"),
                    payload: (payload != "differs").then(|| bytes(payload)),
                }),
                _ => panic!("a line of a recording that makes no sense: {line}"),
            }
        }
        replay
    }

    /// The text.
    pub fn text(&self) -> String {
        let mut text = format!("hello {}\n", digits(&self.hello));
        let mut answers = self.answers.iter();
        for command in &self.commands {
            let _ = writeln!(text, "command {}", digits(command));
            if header(command).flags & flags::WANTS_REPLY != 0 {
                let Answer { status, payload } = answers.next().expect("each is answered");
                let payload = payload.as_deref().map_or("differs".into(), digits);
                let _ = writeln!(text, "answer {status} {payload}");
            }
        }
        text
    }

    /// Says all of it to a server; what it answers, or why it ends the session.
    fn say(&self, server: &Server) -> Result<Vec<Answer>, String> {
        let mut client = RawClient::resay(server.address(), &self.hello)
            .map_err(|refusal| format!("the server refuses: {}", refusal.sentence))?;
        let mut answers = Vec::new();
        for command in &self.commands {
            client.resend(command);
            let CommandHeader { op, flags, seq, .. } = header(command);
            if flags & flags::WANTS_REPLY == 0 {
                continue;
            }
            let Some(reply) = client.try_reply(seq) else {
                let name = outboard_wire::messages::name(op).unwrap_or("of an unknown kind");
                let why = client.ended.unwrap_or_else(|| "lost".into());
                return Err(format!("command {seq}, {name}: the session was {why}"));
            };
            answers.push(match reply {
                Ok(payload) => Answer { status: 0, payload: Some(payload) },
                Err(status) => Answer { status, payload: Some(Vec::new()) },
            });
        }
        Ok(answers)
    }

    /// Says all of it to a server of another release, which must answer as the recorded one did.
    pub fn compare(&self, server: &Server) -> Result<(), String> {
        let answers = self.say(server)?;
        if answers.len() != self.answers.len() {
            return Err(format!("{} answers instead of {}", answers.len(), self.answers.len()));
        }
        let asked = self
            .commands
            .iter()
            .map(|it| header(it))
            .filter(|it| it.flags & flags::WANTS_REPLY != 0);
        for ((wanted, found), header) in self.answers.iter().zip(&answers).zip(asked) {
            let is_same = wanted.status == found.status
                && wanted
                    .payload
                    .as_ref()
                    .is_none_or(|wanted| Some(wanted) == found.payload.as_ref());
            if !is_same {
                let name = outboard_wire::messages::name(header.op).unwrap_or("a command");
                return Err(format!(
                    "command {}, {name}: {found:?} instead of {wanted:?}",
                    header.seq
                ));
            }
        }
        Ok(())
    }
}
