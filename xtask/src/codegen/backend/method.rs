//! One method, from its description.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::forward::Sent;
use crate::codegen::wire::{Class, Message, camel, plain_type};

/// A method as it is described: beside its message, or in `api/backend.toml`.
#[derive(Deserialize, Clone, Default)]
#[serde(deny_unknown_fields)]
pub(in crate::codegen) struct Described {
    pub(super) docs: String,
    /// The method's name, if not its message's.
    pub(super) name: Option<String>,
    /// The trait, if not that of the file.
    #[serde(rename = "trait")]
    pub(super) of: Option<String>,
    /// Whether the first argument is a context.
    pub(super) context: Option<bool>,
    /// Whether the first argument is, in place of a context, a device of the server that is asked.
    #[serde(default)]
    pub(super) home: bool,
    /// What several servers do with it, if no argument tells which one it is for.
    pub(super) servers: Option<Servers>,
    /// Whether only a back end whose devices are in the process has it: of a method without a
    /// message, and with a default.
    #[serde(default)]
    pub(super) local: bool,
    /// The other arguments, if they are not the message's fields.
    pub(super) arguments: Option<Vec<String>>,
    /// What `Ok` holds, if not what the reply does.
    pub(super) result: Option<String>,
    /// The type it returns, if not a `Result`.
    pub(super) returns: Option<String>,
    /// Of a method without a message.
    pub(super) class: Option<Class>,
    /// What the caller of an unsafe method has to see to.
    pub(super) safety: Option<String>,
    /// The body of a back end that does not have the method.
    pub(super) default: Option<String>,
    pub(super) send: Option<Send>,
    /// Fields that no argument fills by its name.
    #[serde(default)]
    pub(super) fill: BTreeMap<String, String>,
    /// The argument whose own fields fill the message's.
    pub(super) spread: Option<String>,
    /// The result, of `reply`.
    pub(super) read: Option<String>,
    /// The memory that `post_using` tells of: address and bytes.
    pub(super) using: Option<String>,
}

/// What several servers do with a method that is of none of them.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(super) enum Servers {
    /// The first one does it.
    First,
    /// Each is asked until one knows what it is about.
    Each,
    /// All are asked; what the first says that knows what it is about counts.
    All,
    /// `Several` has code of its own.
    Own,
    /// Likewise, and it is about two of them: one alone has the default.
    Together,
}

/// Which of several servers a method is for.
pub(super) enum Route {
    /// The one of this expression, a `ServerId`.
    Of(String),
    /// It is of none.
    Process(Servers),
    /// No server has it.
    Nowhere,
}

/// The expression for the server of an argument, if it is of one.
pub(super) fn server_of(name: &str, ty: &str) -> Option<String> {
    match ty {
        "ContextId" | "DeviceId" => Some(format!("{name}.server()")),
        "MemoryKind" | "PoolKind" => Some(format!("{name}.device.server()")),
        _ => None,
    }
}

/// How `Remote` sends a message: the methods of its that do.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(super) enum Send {
    Call,
    CallIdle,
    CallTo,
    Post,
    PostIdle,
    PostTo,
    PostUsing,
    /// By code of its own.
    Own,
}

impl Described {
    pub(in crate::codegen) fn docs(&self) -> &str {
        &self.docs
    }
}

impl Send {
    /// The method of `Remote`.
    pub(super) fn method(self) -> &'static str {
        match self {
            Send::Call => "call",
            Send::CallIdle => "call_idle",
            Send::CallTo => "call_to",
            Send::Post => "post",
            Send::PostIdle => "post_idle",
            Send::PostTo => "post_to",
            Send::PostUsing => "post_using",
            Send::Own => "own",
        }
    }
}

/// What a method returns.
pub(super) enum Returned {
    /// `Result` of this.
    Outcome(String),
    Plain(String),
}

pub(super) struct Method {
    pub(super) name: String,
    pub(super) docs: String,
    pub(super) class: Option<Class>,
    pub(super) arguments: Vec<(String, String)>,
    pub(super) route: Route,
    pub(super) returned: Returned,
    pub(super) safety: Option<String>,
    pub(super) default: Option<String>,
    /// `None` if `Remote` has code of its own for it.
    pub(super) sent: Option<Sent>,
}

impl Method {
    pub(super) fn without_message(described: &Described, known: &BTreeSet<&str>) -> Result<Method> {
        let name = described.name.clone().context("a method of api/backend.toml has no name")?;
        let place = || format!("the method {name}");
        let sends =
            described.send.is_some() || described.read.is_some() || described.spread.is_some();
        if sends || !described.fill.is_empty() || described.using.is_some() {
            bail!(
                "the method {name} says how it is sent, but has no message: it belongs beside one in api/wire/"
            );
        }
        if described.local && described.default.is_none() {
            bail!("the method {name} is not for servers (`local`), so it needs a `default`");
        }
        if described.servers == Some(Servers::Together) && described.default.is_none() {
            bail!("one server alone does not have the method {name}, so it needs a `default`");
        }
        let arguments = arguments(described, Vec::new()).with_context(place)?;
        Method::new(
            name.clone(),
            described,
            described.class,
            arguments,
            "()".to_owned(),
            None,
            known,
        )
        .with_context(place)
    }

    pub(super) fn with_message(
        described: &Described,
        message: &Message,
        known: &BTreeSet<&str>,
    ) -> Result<Method> {
        let name = described.name.clone().unwrap_or_else(|| message.name.clone());
        let place = || format!("the method {name} of the message {}", message.name);
        let method = || {
            if described.class.is_some() {
                bail!("its class is the message's, and is not said again");
            }
            if described.local {
                bail!("it has a message, so it is for servers, too, and not `local`");
            }
            if described.servers == Some(Servers::Together) {
                bail!("it has a message, so one server has it, and not only several `together`");
            }
            let fields =
                message.described_fields.iter().map(|(name, ty)| (name.clone(), argument_type(ty)));
            let arguments = arguments(described, fields.collect())?;
            let result = match message.described_reply.as_slice() {
                [] => "()".to_owned(),
                [(_, ty)] => owned(ty),
                several => format!(
                    "({})",
                    several.iter().map(|(_, ty)| owned(ty)).collect::<Vec<_>>().join(", ")
                ),
            };
            let sent = Sent::new(described, message, &arguments)?;
            Method::new(
                name.clone(),
                described,
                Some(message.class),
                arguments,
                result,
                sent,
                known,
            )
        };
        method().with_context(place)
    }

    fn new(
        name: String,
        described: &Described,
        class: Option<Class>,
        arguments: Vec<(String, String)>,
        result: String,
        sent: Option<Sent>,
        known: &BTreeSet<&str>,
    ) -> Result<Method> {
        let returned = match (&described.returns, &described.result) {
            (Some(_), Some(_)) => bail!("it has both `result` and `returns`"),
            (Some(plain), None) => Returned::Plain(plain.clone()),
            (None, other) => Returned::Outcome(other.clone().unwrap_or(result)),
        };
        let (Returned::Outcome(ty) | Returned::Plain(ty)) = &returned;
        for ty in arguments.iter().map(|(_, ty)| ty).chain([ty]) {
            if let Some(unknown) = names(ty).find(|name| !is_known(name, known)) {
                bail!(
                    "nobody knows the type {unknown}: `types` in api/backend.toml says which module a type is in"
                );
            }
        }
        let route = match (
            arguments.iter().find_map(|(name, ty)| server_of(name, ty)),
            described.servers,
        ) {
            (None, None) if described.local => Route::Nowhere,
            _ if described.local => {
                bail!("it is not for servers (`local`), so nothing tells which of them it is for")
            }
            (Some(_), Some(Servers::Together)) => Route::Process(Servers::Together),
            (Some(server), None) => Route::Of(server),
            (None, Some(servers)) => Route::Process(servers),
            (Some(_), Some(_)) => {
                bail!("an argument tells which server it is for, so `servers` has no effect")
            }
            (None, None) => bail!(
                "no argument tells which of several servers it is for: it takes a context, a `home`, or says in `servers` what several do"
            ),
        };
        let can_miss = matches!(route, Route::Of(_) | Route::Process(Servers::Each | Servers::All));
        if matches!(returned, Returned::Plain(_)) && can_miss {
            bail!("it cannot fail, so several servers cannot say that one is not there");
        }
        Ok(Method {
            name,
            docs: described.docs.clone(),
            class,
            arguments,
            route,
            returned,
            safety: described.safety.clone(),
            default: described.default.clone(),
            sent,
        })
    }
}

/// The arguments that are described, or those that the message's fields make.
fn arguments(
    described: &Described,
    fields: Vec<(String, String)>,
) -> Result<Vec<(String, String)>> {
    let split = |text: &String| {
        let (name, ty) = text
            .split_once(": ")
            .with_context(|| format!("an argument is \"name: type\", not {text:?}"))?;
        Ok((name.to_owned(), ty.to_owned()))
    };
    let own =
        described.arguments.as_ref().map(|list| list.iter().map(split).collect::<Result<Vec<_>>>());
    let first = match (described.home, described.context) {
        (true, Some(_)) => bail!("`home` stands in place of a context, so `context` has no effect"),
        (true, None) => Some(("home", "DeviceId")),
        (false, None | Some(true)) => Some(("ctx", "ContextId")),
        (false, Some(false)) => None,
    };
    let first = first.map(|(name, ty)| (name.to_owned(), ty.to_owned()));
    Ok(first.into_iter().chain(own.unwrap_or(Ok(fields))?).collect())
}

/// The type of the argument that fills a field of this type.
fn argument_type(ty: &str) -> String {
    match ty {
        "bytes" => "&[u8]".to_owned(),
        "str" => "&str".to_owned(),
        _ => match ty.strip_prefix("list<").and_then(|ty| ty.strip_suffix('>')) {
            Some(item) => format!("&[{}]", plain_type(item)),
            None if ty.starts_with(char::is_uppercase) => format!("&{ty}"),
            None => plain_type(ty),
        },
    }
}

/// The type of a reply's field when it is the caller's.
fn owned(ty: &str) -> String {
    match ty {
        "bytes" => "Vec<u8>".to_owned(),
        "str" => "String".to_owned(),
        _ => plain_type(ty),
    }
}

/// The names in a type.
pub(super) fn names(ty: &str) -> impl Iterator<Item = &str> {
    ty.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '\'')
        .filter(|name| name.starts_with(|c: char| c.is_alphabetic()))
}

fn is_known(name: &str, known: &BTreeSet<&str>) -> bool {
    const PLAIN: &[&str] = &[
        "bool", "const", "dyn", "f32", "f64", "i32", "i64", "mut", "str", "u8", "u16", "u32",
        "u64", "usize", "Option", "Self", "String", "Vec",
    ];
    PLAIN.contains(&name) || known.contains(name)
}

/// The Rust name of a message's type.
pub(super) fn message_type(message: &Message) -> String {
    camel(&message.name)
}
