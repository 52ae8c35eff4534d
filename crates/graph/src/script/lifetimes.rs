//! Where variables are used last, so that the interpreter frees tensors as early as a Python program would.

use super::ast::*;

/// Notes, for each statement of a function's body, the variables that nothing after it reads.
pub(super) fn mark(body: &mut Block, locals: usize) {
    let mut used = vec![false; locals];
    for (stmt, drops) in body.iter_mut().rev() {
        let mut here = Vec::new();
        statement(stmt, &mut here);
        for local in here {
            if !std::mem::replace(&mut used[local], true) {
                drops.push(local);
            }
        }
    }
}

fn block(body: &Block, out: &mut Vec<usize>) {
    body.iter().for_each(|(s, _)| statement(s, out));
}

fn statement(stmt: &Stmt, out: &mut Vec<usize>) {
    match stmt {
        Stmt::Assign(to, value) => {
            target(to, out);
            expr(value, out);
        }
        Stmt::Expr(value) | Stmt::Return(value) | Stmt::Raise(value) => expr(value, out),
        Stmt::If(condition, a, b) => {
            expr(condition, out);
            block(a, out);
            block(b, out);
        }
        Stmt::For(to, over, body) => {
            target(to, out);
            expr(over, out);
            block(body, out);
        }
        Stmt::While(condition, body) => {
            expr(condition, out);
            block(body, out);
        }
        Stmt::Break | Stmt::Continue => {}
    }
}

fn target(to: &Target, out: &mut Vec<usize>) {
    match to {
        Target::Local(slot) => out.push(*slot),
        Target::Tuple(all) => all.iter().for_each(|t| target(t, out)),
        Target::Attribute(object, _) => expr(object, out),
        Target::Index(object, index) => {
            expr(object, out);
            expr(index, out);
        }
    }
}

fn expr(value: &Expr, out: &mut Vec<usize>) {
    match value {
        Expr::Local(slot) => out.push(*slot),
        Expr::Literal(_) | Expr::Path(_) => {}
        Expr::Attribute(inner, _) | Expr::Cast(_, inner) => expr(inner, out),
        Expr::List(items) | Expr::Tuple(items) | Expr::Op(_, items, _) => items.iter().for_each(|e| expr(e, out)),
        Expr::Dict(entries) => entries.iter().for_each(|(k, v)| {
            expr(k, out);
            expr(v, out);
        }),
        Expr::Index(a, b) => {
            expr(a, out);
            expr(b, out);
        }
        Expr::Choice(parts) => parts.iter().for_each(|e| expr(e, out)),
        Expr::Logic(_, parts) => parts.iter().for_each(|e| expr(e, out)),
        Expr::Call(call) => {
            expr(&call.target, out);
            call.args.iter().for_each(|e| expr(e, out));
            call.keywords.iter().for_each(|(_, e)| expr(e, out));
        }
    }
}
