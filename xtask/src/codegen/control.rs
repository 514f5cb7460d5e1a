//! The messages between supervisor and worker: the description is read and checked here, also
//! against the lock file of tags and forms.

mod emit;
#[cfg(test)]
mod tests;
mod types;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use types::{Field, Names, Type};

/// What api/control.toml says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    #[serde(default)]
    uses: BTreeMap<String, String>,
    #[serde(default)]
    kept: BTreeMap<String, Kept>,
    to_worker: BTreeMap<String, MessageDescription>,
    to_supervisor: BTreeMap<String, MessageDescription>,
    #[serde(default)]
    r#struct: BTreeMap<String, StructDescription>,
}

/// A descriptor that a worker keeps for the next supervisor.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    tag: u8,
    doc: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageDescription {
    tag: u8,
    doc: String,
    #[serde(default)]
    fields: Vec<String>,
    holds: Option<String>,
    #[serde(default)]
    before_session: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StructDescription {
    doc: String,
    fields: Vec<String>,
    #[serde(default)]
    secret: bool,
    #[serde(default)]
    payload: bool,
}

struct Message {
    name: String,
    tag: u8,
    doc: String,
    content: Content,
    /// Both sides are of one release then, so that its form may change.
    before_session: bool,
}

enum Content {
    Fields(Vec<Field>),
    One(Type),
}

struct Struct {
    doc: String,
    fields: Vec<Field>,
    /// Nobody finds it in a log.
    secret: bool,
    /// What workers of different releases read, although no message holds it.
    payload: bool,
}

/// The messages in one direction, by tag.
struct Direction {
    /// As the description has it.
    name: &'static str,
    messages: Vec<Message>,
}

/// The whole description, checked.
pub(crate) struct Control {
    uses: BTreeMap<String, String>,
    kept: BTreeMap<String, Kept>,
    directions: [Direction; 2],
    structs: BTreeMap<String, Struct>,
    /// What the lock file has said so far.
    locked: BTreeMap<String, String>,
}

impl Control {
    pub(crate) fn read(root: &Path) -> Result<Control> {
        let text =
            std::fs::read_to_string(root.join("api/control.toml")).context("api/control.toml")?;
        let lock = std::fs::read_to_string(root.join("api/control.lock")).unwrap_or_default();
        Control::parse(&text, &lock)
    }

    fn parse(text: &str, lock: &str) -> Result<Control> {
        let described: Description = toml::from_str(text).context("api/control.toml")?;
        if let Some(name) =
            described.r#struct.keys().find(|name| described.uses.contains_key(*name))
        {
            bail!("api/control.toml: {name} is described under [struct] and named under [uses]");
        }
        let names = Names {
            structs: described.r#struct.keys().map(String::as_str).collect(),
            foreign: described.uses.keys().map(String::as_str).collect(),
        };
        let mut structs = BTreeMap::new();
        for (name, description) in &described.r#struct {
            let read = Struct::read(description, &names)
                .with_context(|| format!("api/control.toml, struct {name}"))?;
            structs.insert(name.clone(), read);
        }
        for name in structs.keys() {
            check_end(name, &structs, &mut Vec::new())?;
        }
        check_tags("kept", described.kept.iter().map(|(name, kept)| (name, kept.tag)))?;
        let control = Control {
            directions: [
                Direction::read("to_worker", described.to_worker, &names)?,
                Direction::read("to_supervisor", described.to_supervisor, &names)?,
            ],
            uses: described.uses,
            kept: described.kept,
            structs,
            locked: toml::from_str(lock).context("api/control.lock")?,
        };
        control.check_lock()?;
        Ok(control)
    }

    /// What never changes: of each message its tag, and its form unless that may change.
    fn fixed(&self) -> BTreeMap<String, String> {
        let mut fixed = BTreeMap::new();
        for direction in &self.directions {
            for message in &direction.messages {
                let form = match &message.content {
                    _ if message.before_session => String::new(),
                    Content::Fields(fields) => format!(" {}", types::form(fields, &self.structs)),
                    Content::One(ty) => format!(" ({})", ty.form(&self.structs)),
                };
                fixed.insert(
                    format!("{}.{}", direction.name, message.name),
                    format!("{}{form}", message.tag),
                );
            }
        }
        for (name, kept) in &self.kept {
            fixed.insert(format!("kept.{name}"), kept.tag.to_string());
        }
        for (name, payload) in self.structs.iter().filter(|(_, described)| described.payload) {
            fixed.insert(format!("struct.{name}"), types::form(&payload.fields, &self.structs));
        }
        fixed
    }

    fn check_lock(&self) -> Result<()> {
        let fixed = self.fixed();
        for (name, locked) in &self.locked {
            let Some(now) = fixed.get(name) else {
                bail!(
                    "{name} is in api/control.lock but not in api/control.toml; what other releases may say stays there"
                );
            };
            // A message whose form might change may be given one for ever.
            if now != locked && !now.starts_with(&format!("{locked} ")) {
                bail!(
                    "{name} is {locked:?} in api/control.lock and {now:?} in api/control.toml; describe another one instead, with a name and tag of its own"
                );
            }
        }
        Ok(())
    }

    /// What is fixed so far.
    pub(crate) fn lock(&self) -> String {
        let mut out = String::from(
            "# Tags and forms of what control.toml describes, written by `cargo xtask codegen`. Append-only.\n",
        );
        for (name, fixed) in self.fixed() {
            let _ = writeln!(out, "\"{name}\" = \"{fixed}\"");
        }
        out
    }
}

impl Direction {
    fn read(
        name: &'static str,
        described: BTreeMap<String, MessageDescription>,
        names: &Names<'_>,
    ) -> Result<Direction> {
        check_tags(
            name,
            described.iter().map(|(message, description)| (message, description.tag)),
        )?;
        let mut messages = Vec::new();
        for (message, description) in described {
            let place = format!("api/control.toml, {name}.{message}");
            messages.push(Message::read(message, description, names).context(place)?);
        }
        messages.sort_by_key(|message| message.tag);
        Ok(Direction { name, messages })
    }
}

impl Message {
    fn read(name: String, description: MessageDescription, names: &Names<'_>) -> Result<Message> {
        let MessageDescription { tag, doc, fields, holds, before_session } = description;
        if name == "unknown" {
            bail!("what another release says is called unknown");
        }
        let content = match holds {
            Some(_) if !fields.is_empty() => {
                bail!("a message has either `fields` or one value that it `holds`")
            }
            Some(ty) => Content::One(Type::parse(&ty, names)?),
            None => Content::Fields(read_fields(&fields, names)?),
        };
        Ok(Message { name, tag, doc, content, before_session })
    }
}

impl Struct {
    fn read(description: &StructDescription, names: &Names<'_>) -> Result<Struct> {
        let StructDescription { doc, fields, secret, payload } = description;
        Ok(Struct {
            doc: doc.clone(),
            fields: read_fields(fields, names)?,
            secret: *secret,
            payload: *payload,
        })
    }

    fn is_copy(&self, structs: &BTreeMap<String, Struct>) -> bool {
        self.fields.iter().all(|field| field.ty.is_copy(structs))
    }
}

fn read_fields(texts: &[String], names: &Names<'_>) -> Result<Vec<Field>> {
    let mut fields: Vec<Field> = Vec::new();
    for text in texts {
        let field = Field::parse(text, names)?;
        if fields.iter().any(|other| other.name == field.name) {
            bail!("there are two fields {:?}", field.name);
        }
        fields.push(field);
    }
    Ok(fields)
}

fn check_tags<'a>(place: &str, tags: impl Iterator<Item = (&'a String, u8)>) -> Result<()> {
    let mut owners: BTreeMap<u8, &String> = BTreeMap::new();
    for (name, tag) in tags {
        if let Some(other) = owners.insert(tag, name) {
            bail!("api/control.toml: {place}.{other} and {place}.{name} both have the tag {tag}");
        }
    }
    Ok(())
}

/// A structure that holds itself would have no end.
fn check_end<'a>(
    name: &'a str,
    structs: &'a BTreeMap<String, Struct>,
    around: &mut Vec<&'a str>,
) -> Result<()> {
    if around.contains(&name) {
        bail!("api/control.toml: struct {name} holds itself");
    }
    around.push(name);
    for part in structs[name].fields.iter().filter_map(|field| field.ty.part()) {
        check_end(part, structs, around)?;
    }
    around.pop();
    Ok(())
}
