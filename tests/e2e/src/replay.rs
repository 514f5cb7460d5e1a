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

/// Commands whose answer begins with an address that the server's device has chosen. Others are to
/// use the one that the device chooses this time.
const PLACED: [&str; 1] = ["module_global"];
const ADDRESS: usize = size_of::<u64>();

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

fn name(command: &CommandHeader) -> &'static str {
    outboard_wire::messages::name(command.op).unwrap_or("of an unknown kind")
}

/// Whether two answers to a command are the same, but for an address that the device has chosen.
fn is_like(command: &CommandHeader, one: Option<&[u8]>, other: Option<&[u8]>) -> bool {
    let skipped = if PLACED.contains(&name(command)) { ADDRESS } else { 0 };
    let part = |payload: Option<&[u8]>| payload.map(|it| it.get(skipped..).map(<[u8]>::to_vec));
    part(one) == part(other)
}

/// A command with the addresses that are this time's.
fn moved(command: &[u8], places: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut command = command.to_vec();
    for (then, now) in places {
        for at in CommandHeader::SIZE..(command.len() + 1).saturating_sub(ADDRESS) {
            if command[at..at + ADDRESS] == then[..] {
                command[at..at + ADDRESS].copy_from_slice(now);
            }
        }
    }
    command
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
        let same = |((one, other), asked): ((Answer, Answer), CommandHeader)| {
            assert_eq!(one.status, other.status, "it is the same each time");
            let is_same = is_like(&asked, one.payload.as_deref(), other.payload.as_deref());
            Answer { status: one.status, payload: one.payload.filter(|_| is_same) }
        };
        let answers = first.into_iter().zip(second).zip(replay.asked()).map(same).collect();
        replay.answers = answers;
        replay
    }

    /// The headers of what is answered.
    fn asked(&self) -> impl Iterator<Item = CommandHeader> {
        let all = self.commands.iter().map(|command| header(command));
        all.filter(|header| header.flags & flags::WANTS_REPLY != 0)
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
        let (mut answers, mut places) = (Vec::new(), Vec::new());
        for command in &self.commands {
            client.resend(&moved(command, &places));
            let header = header(command);
            let CommandHeader { flags, seq, .. } = header;
            if flags & flags::WANTS_REPLY == 0 {
                continue;
            }
            let Some(reply) = client.try_reply(seq) else {
                let (name, why) = (name(&header), client.ended.unwrap_or_else(|| "lost".into()));
                return Err(format!("command {seq}, {name}: the session was {why}"));
            };
            let before = self.answers.get(answers.len()).and_then(|it| it.payload.as_deref());
            let then = before.and_then(|payload| payload.get(..ADDRESS));
            if PLACED.contains(&name(&header))
                && let (Some(then), Ok(Some(now))) =
                    (then, reply.as_ref().map(|it| it.get(..ADDRESS)))
            {
                places.push((then.to_vec(), now.to_vec()));
            }
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
        for ((wanted, found), header) in self.answers.iter().zip(&answers).zip(self.asked()) {
            let is_same = wanted.status == found.status
                && (wanted.payload.is_none()
                    || is_like(&header, wanted.payload.as_deref(), found.payload.as_deref()));
            if !is_same {
                return Err(format!(
                    "command {}, {}: {found:?} instead of {wanted:?}",
                    header.seq,
                    name(&header)
                ));
            }
        }
        Ok(())
    }
}
