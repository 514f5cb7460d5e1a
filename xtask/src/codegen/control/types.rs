//! Types of fields, and the Rust that they stand for.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

use super::Struct;

/// Numbers and `bool`: the same in a description, in Rust and among the reader's types.
const PLAIN: [&str; 6] = ["u8", "u16", "u32", "u64", "u128", "bool"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Type {
    Plain(String),
    Bytes,
    Str,
    Milliseconds,
    List(Box<Type>),
    Option(Box<Type>),
    Boxed(Box<Type>),
    Array(Box<Type>, usize),
    /// A structure of the description.
    Struct(String),
    /// One whose codec stands elsewhere.
    Foreign(String),
}

/// The names that a description gives to types.
pub(super) struct Names<'a> {
    pub(super) structs: Vec<&'a str>,
    pub(super) foreign: Vec<&'a str>,
}

impl Type {
    pub(super) fn parse(text: &str, names: &Names<'_>) -> Result<Type> {
        let within = |before: &str, after: char| {
            text.strip_prefix(before).and_then(|rest| rest.strip_suffix(after))
        };
        if let Some(inner) = within("box<", '>') {
            return Ok(Type::Boxed(Box::new(Type::inner(inner, names)?)));
        }
        if let Some(inner) = within("list<", '>') {
            return Ok(Type::List(Box::new(Type::inner(inner, names)?)));
        }
        if let Some(inner) = within("option<", '>') {
            return Ok(Type::Option(Box::new(Type::inner(inner, names)?)));
        }
        if let Some((inner, count)) = within("[", ']').and_then(|array| array.split_once("; ")) {
            let count =
                count.parse().with_context(|| format!("{count:?} is no number of elements"))?;
            return Ok(Type::Array(Box::new(Type::inner(inner, names)?), count));
        }
        Ok(match text {
            "bytes" => Type::Bytes,
            "str" => Type::Str,
            "milliseconds" => Type::Milliseconds,
            plain if PLAIN.contains(&plain) => Type::Plain(plain.to_owned()),
            name if names.structs.contains(&name) => Type::Struct(name.to_owned()),
            name if names.foreign.contains(&name) => Type::Foreign(name.to_owned()),
            _ => bail!(
                "there is no type {text:?}; api/README.md lists them, and [uses] names those of other modules"
            ),
        })
    }

    fn inner(text: &str, names: &Names<'_>) -> Result<Type> {
        match Type::parse(text, names)? {
            Type::Milliseconds | Type::Boxed(_) => {
                bail!("{text:?} stands by itself, not within another type")
            }
            inner => Ok(inner),
        }
    }

    /// As Rust has it.
    pub(super) fn rust(&self) -> String {
        match self {
            Type::Plain(name) | Type::Struct(name) | Type::Foreign(name) => name.clone(),
            Type::Bytes => "Vec<u8>".to_owned(),
            Type::Str => "String".to_owned(),
            Type::Milliseconds => "std::time::Duration".to_owned(),
            Type::List(inner) => format!("Vec<{}>", inner.rust()),
            Type::Option(inner) => format!("Option<{}>", inner.rust()),
            Type::Boxed(inner) => format!("Box<{}>", inner.rust()),
            Type::Array(inner, count) => format!("[{}; {count}]", inner.rust()),
        }
    }

    /// The reference to a place of this type that [`Type::put`] takes.
    pub(super) fn reference(&self, place: &str) -> String {
        match self {
            Type::Milliseconds | Type::Boxed(_) => place.to_owned(),
            _ => format!("&{place}"),
        }
    }

    /// The statement that writes what the reference `value` points at.
    pub(super) fn put(&self, value: &str) -> String {
        match self {
            Type::Bytes => format!("writer.bytes({value});"),
            Type::Milliseconds => {
                format!("writer.u64(u64::try_from({value}.as_millis()).unwrap_or(u64::MAX));")
            }
            Type::Boxed(_) => format!("writer.put({value}.as_ref());"),
            _ => format!("writer.put({value});"),
        }
    }

    /// The expression that reads one.
    pub(super) fn get(&self) -> &'static str {
        match self {
            Type::Bytes => "reader.bytes()?.to_vec()",
            Type::Milliseconds => "std::time::Duration::from_millis(reader.u64()?)",
            Type::Boxed(_) => "Box::new(reader.get()?)",
            _ => "reader.get()?",
        }
    }

    /// Whether Rust copies it as easily as a number. Of types that stand elsewhere nothing is
    /// known.
    pub(super) fn is_copy(&self, structs: &BTreeMap<String, Struct>) -> bool {
        match self {
            Type::Plain(_) | Type::Milliseconds => true,
            Type::Option(inner) | Type::Array(inner, _) => inner.is_copy(structs),
            Type::Struct(name) => structs[name].is_copy(structs),
            Type::Bytes | Type::Str | Type::List(_) | Type::Boxed(_) | Type::Foreign(_) => false,
        }
    }

    /// The form of the type's bytes, in which names of structures and fields do not show.
    pub(super) fn form(&self, structs: &BTreeMap<String, Struct>) -> String {
        match self {
            Type::Plain(name) | Type::Foreign(name) => name.clone(),
            Type::Bytes => "bytes".to_owned(),
            Type::Str => "str".to_owned(),
            Type::Milliseconds => "milliseconds".to_owned(),
            Type::List(inner) => format!("list<{}>", inner.form(structs)),
            Type::Option(inner) => format!("option<{}>", inner.form(structs)),
            Type::Boxed(inner) => inner.form(structs),
            Type::Array(inner, count) => format!("[{}; {count}]", inner.form(structs)),
            Type::Struct(name) => form(&structs[name].fields, structs),
        }
    }

    /// The structure that it has in it, if any.
    pub(super) fn part(&self) -> Option<&str> {
        match self {
            Type::Struct(name) => Some(name),
            Type::List(inner)
            | Type::Option(inner)
            | Type::Boxed(inner)
            | Type::Array(inner, _) => inner.part(),
            _ => None,
        }
    }
}

/// A field of a structure or message.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) ty: Type,
    pub(super) doc: Option<String>,
}

impl Field {
    pub(super) fn parse(text: &str, names: &Names<'_>) -> Result<Field> {
        let (field, doc) = text
            .split_once(" | ")
            .map_or((text, None), |(field, doc)| (field, Some(doc.to_owned())));
        let Some((name, ty)) = field.split_once(": ") else {
            bail!("a field is \"name: type\" or \"name: type | what it is\", not {text:?}");
        };
        Ok(Field { name: name.to_owned(), ty: Type::parse(ty, names)?, doc })
    }
}

/// The form of the bytes of these fields.
pub(super) fn form(fields: &[Field], structs: &BTreeMap<String, Struct>) -> String {
    let forms: Vec<String> = fields.iter().map(|field| field.ty.form(structs)).collect();
    format!("({})", forms.join(" "))
}
