//! From a command line to the function that carries it out.

use super::context::{Context, ERROR};
use super::line::{Tokens, command_of};
use super::reply::Output;
use super::step::Step;
use super::{admin, meta, meta_store, text};
use crate::store::operations::Mode;

/// Carries out the command in `line` (its newline cut off); `after` is what follows it.
pub(crate) fn execute<O: Output>(context: &mut Context<'_, O>, line: &[u8], after: &[u8]) -> Step {
    // The rest of a line that is cut is not here: each of its keys is looked at instead.
    let command = if context.is_cut { line } else { command_of(line) };
    // Most requests are these, and their keys are not counted or cut into tokens first.
    if let Some(keys) = command.strip_prefix(b"get ") {
        return text::get(context, (command.len(), keys), false);
    }
    let tokens = Tokens::of(command);
    let count = tokens.len();
    let name = tokens.get(0);
    if name.len() < 2 {
        context.reply(ERROR);
        return Step::done();
    }
    match name {
        b"mg" | b"ms" | b"md" | b"ma" if count < 2 => context.reply(ERROR),
        b"mg" | b"ms" | b"md" | b"ma" | b"me" => {
            let step = match name {
                b"mg" => meta::get(context, &tokens),
                b"ms" => meta_store::set(context, &tokens, after),
                b"md" => meta::delete(context, &tokens),
                b"ma" => meta::arithmetic(context, &tokens),
                _ => meta::debug(context, &tokens),
            };
            return step.unwrap_or_else(|line| {
                context.reply(line);
                Step::done()
            });
        }
        b"mn" => context.reply(b"MN\r\n"),
        b"get" | b"gets" | b"bget" | b"gat" | b"gats" if count >= 2 => {
            return retrieve(context, name, command);
        }
        b"set" if matches!(count, 5 | 6) => {
            return text::update(context, &tokens, Mode::Set, after);
        }
        b"add" if matches!(count, 5 | 6) => {
            return text::update(context, &tokens, Mode::Add, after);
        }
        b"replace" if matches!(count, 5 | 6) => {
            return text::update(context, &tokens, Mode::Replace, after);
        }
        b"append" if matches!(count, 5 | 6) => {
            return text::update(context, &tokens, Mode::Append, after);
        }
        b"prepend" if matches!(count, 5 | 6) => {
            return text::update(context, &tokens, Mode::Prepend, after);
        }
        b"cas" if matches!(count, 6 | 7) => {
            return text::update(context, &tokens, Mode::Cas, after);
        }
        b"incr" | b"decr" if matches!(count, 3 | 4) => {
            text::arithmetic(context, &tokens, name == b"incr");
        }
        b"delete" if matches!(count, 2..=4) => {
            let line = text::delete(context, &tokens);
            context.reply_unless(count > 2 && text::noreply(&tokens), line);
        }
        b"touch" if matches!(count, 3 | 4) => {
            let line = text::touch(context, &tokens);
            context.reply_unless(text::noreply(&tokens), line);
        }
        _ => return admin::execute(context, &tokens),
    }
    Step::done()
}

/// The retrieval commands other than a plain `get`; `command` is the whole line.
fn retrieve<O: Output>(context: &mut Context<'_, O>, name: &[u8], command: &[u8]) -> Step {
    // Leading blanks are allowed: the keys start behind the first occurrence of the name.
    let start = command.iter().take_while(|&&byte| byte == b' ').count() + name.len();
    let keys = (command.len(), command.get(start..).unwrap_or(&[]));
    match name {
        b"gets" => text::get(context, keys, true),
        b"gat" => text::get_and_touch(context, keys, false),
        b"gats" => text::get_and_touch(context, keys, true),
        _ => text::get(context, keys, false),
    }
}
