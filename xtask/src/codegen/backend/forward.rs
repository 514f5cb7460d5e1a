//! What turns a method's arguments into a message, and the reply into its result.

use anyhow::{Context, Result, bail};

use super::method::{Described, Send, message_type, names};
use crate::codegen::wire::{Class, Message};

/// A message that a method sends.
pub(super) struct Sent {
    /// The expression that sends it and gives the outcome.
    pub(super) expression: String,
}

impl Sent {
    /// `None` if the client has code of its own for it.
    pub(super) fn new(
        described: &Described,
        message: &Message,
        arguments: &[(String, String)],
    ) -> Result<Option<Sent>> {
        let send = described.send.unwrap_or(match message.class {
            Class::Posted => Send::Post,
            Class::Call => Send::Call,
        });
        if send == Send::Own {
            let sends =
                described.spread.is_some() || described.read.is_some() || described.using.is_some();
            if sends || !described.fill.is_empty() {
                bail!(
                    "the client has code of its own for it (`send = \"own\"`): `fill`, `spread`, `read` and `using` have no effect"
                );
            }
            return Ok(None);
        }
        let calls = matches!(send, Send::Call | Send::CallIdle | Send::CallTo);
        if calls != (message.class == Class::Call) {
            let class = if calls { "is posted" } else { "is a call" };
            bail!("it cannot be sent by `{}`: the message {class}", send.method());
        }
        if (send == Send::PostUsing) != described.using.is_some() {
            bail!("`using` goes with `send = \"post_using\"`, and must say which memory it is");
        }
        let mut used = Used::default();
        let fields = fields(described, message, arguments, &mut used)?;
        let message_text = format!("&msg::{} {{ {} }}", message_type(message), fields.join(", "));
        let context = match arguments.first() {
            Some((name, ty)) if name == "ctx" && ty == "ContextId" => "ctx",
            _ => "NO_CONTEXT",
        };
        used.text(context);
        if described.home {
            // Whoever has several servers has used it.
            used.text("home");
        }
        let stream = || {
            let mut streams =
                arguments.iter().filter(|(_, ty)| ty == "StreamId").map(|(name, _)| name.as_str());
            match (streams.next(), streams.next()) {
                (Some(stream), None) => Ok(stream),
                _ => bail!(
                    "it says which stream the work goes to, so it must have one argument of the type StreamId"
                ),
            }
        };
        let read = match (calls, &described.read) {
            (true, _) => format!(", |{}", read(described, message)?),
            (false, None) => String::new(),
            (false, Some(_)) => bail!("it is posted, so there is no reply to read a result from"),
        };
        let place = match send {
            Send::CallTo | Send::PostTo => format!("{context}, {}", stream()?),
            Send::PostUsing => {
                let using = described.using.as_deref().unwrap_or_default();
                used.text(using);
                format!("{context}, {}, {using}", stream()?)
            }
            _ => context.to_owned(),
        };
        let expression = format!("self.{}({place}, {message_text}{read})", send.method());
        if let Some((unused, _)) = arguments.iter().find(|(name, _)| !used.0.contains(name)) {
            bail!("its argument `{unused}` fills no field of the message");
        }
        Ok(Some(Sent { expression }))
    }
}

/// The names that have been used.
#[derive(Default)]
struct Used(Vec<String>);

impl Used {
    fn text(&mut self, expression: &str) {
        self.0.extend(names(expression).map(str::to_owned));
    }
}

/// The message's fields, as in the expression of a struct.
fn fields(
    described: &Described,
    message: &Message,
    arguments: &[(String, String)],
    used: &mut Used,
) -> Result<Vec<String>> {
    if let Some(name) =
        described.fill.keys().find(|name| !message.fields.iter().any(|(field, _)| field == *name))
    {
        bail!("`fill` names {name}, which is not a field of the message");
    }
    let spread = described.spread.as_deref();
    if let Some(spread) = spread.filter(|spread| !arguments.iter().any(|(name, _)| name == spread))
    {
        bail!("`spread` names {spread}, which is not an argument");
    }
    let mut filled = Vec::new();
    for ((field, described_type), (_, ty)) in message.described_fields.iter().zip(&message.fields) {
        let expression = match (described.fill.get(field), arguments.iter().find(|(name, _)| name == field), spread) {
            (Some(expression), _, _) => expression.clone(),
            (None, Some((name, argument)), _) => converted(name, argument, ty).with_context(|| {
                format!("its argument `{name}: {argument}` does not become the field `{field}: {described_type}` by itself: say how in `fill`")
            })?,
            (None, None, Some(spread)) if ty.starts_with("Vec<") => format!("{spread}.{field}.to_vec()"),
            (None, None, Some(spread)) => format!("{spread}.{field}"),
            (None, None, None) => {
                bail!("nothing fills the field `{field}: {described_type}`: it has no argument of that name, and `fill` does not say")
            }
        };
        used.text(&expression);
        filled.push(if expression == *field {
            expression
        } else {
            format!("{field}: {expression}")
        });
    }
    if let Some(spread) = spread {
        used.text(spread);
    }
    Ok(filled)
}

/// An argument as the field of a message, if it is plain how.
fn converted(name: &str, argument: &str, field: &str) -> Option<String> {
    let inner = |prefix: &str, suffix: &str| {
        argument.strip_prefix(prefix).and_then(|ty| ty.strip_suffix(suffix))
    };
    let list = |item: &str| field == format!("Vec<{item}>");
    match (argument, field) {
        _ if argument == field => return Some(name.to_owned()),
        ("&str", "&'a str") | ("&[u8]", "&'a [u8]") => return Some(name.to_owned()),
        ("Option<ObjectId>", "ObjectId") => {
            return Some(format!("{name}.unwrap_or(ObjectId::NONE)"));
        }
        _ => {}
    }
    if inner("&[", "]").is_some_and(list) {
        Some(format!("{name}.to_vec()"))
    } else if inner("Option<&", ">").is_some_and(list) {
        Some(format!("{name}.cloned().into_iter().collect()"))
    } else if inner("Option<", ">").is_some_and(list) {
        Some(format!("{name}.into_iter().collect()"))
    } else if inner("&", "") == Some(field) {
        Some(format!("{name}.clone()"))
    } else {
        None
    }
}

/// The closure that takes the result from the reply, behind its first bar.
fn read(described: &Described, message: &Message) -> Result<String> {
    if let Some(read) = &described.read {
        return Ok(format!("reply| {read}"));
    }
    if described.result.is_some() {
        bail!("it has a result of its own (`result`): say in `read` how the reply becomes that");
    }
    let part = |(name, ty): &(String, String)| match ty.as_str() {
        "bytes" => format!("reply.{name}.to_vec()"),
        "str" => format!("reply.{name}.to_owned()"),
        _ => format!("reply.{name}"),
    };
    Ok(match message.described_reply.as_slice() {
        [] => "_| ()".to_owned(),
        [one] => format!("reply| {}", part(one)),
        several => format!("reply| ({})", several.iter().map(part).collect::<Vec<_>>().join(", ")),
    })
}
