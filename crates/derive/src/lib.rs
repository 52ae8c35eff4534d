//! `#[derive(Module)]`: a struct's fields as the members of a module.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, LitStr, Member, Path, Result};

/// Implements `Module` for a struct: fields that are parameters, buffers or modules become its members, numbers and
/// strings are skipped. Also implements `Stateful`, so that checkpoints take it, and `Debug` and `Display`, so that
/// `println!("{model}")` shows its layers.
///
/// - `#[module(skip)]` on a field of another type leaves it out.
/// - `#[module(rename = "…")]` on a field gives it another name in the state dict.
/// - `#[module(type_name = "path")]` on the struct names a function `fn(&Self) -> &'static str` for its name when
///   printed, in place of the struct's.
/// - `#[module(extra_repr = "path")]` on the struct names a function `fn(&Self) -> String` for its settings when
///   printed.
/// - `#[module(crate = "path")]` on the struct says where the traits are, if not in `rushlight::nn`.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(
            input.ident.span(),
            "Module can be derived for structs; for an enum, implement `members` and `members_mut` with a match",
        ));
    };
    let options = struct_options(input)?;
    let nn = &options.nn;
    let (mut shared, mut changing, mut copied, mut bounds) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (i, field) in data.fields.iter().enumerate() {
        let options = field_options(field)?;
        let place = match (&data.fields, &field.ident) {
            (Fields::Named(_), Some(name)) => Member::Named(name.clone()),
            _ => Member::Unnamed(i.into()),
        };
        if options.skip {
            let described = format!("field {} of {}", place.to_token_stream(), input.ident);
            copied.push(quote!(#place: (&#nn::__private::Setting(&self.#place)).copied(#described)?));
            continue;
        }
        let name = options.rename.unwrap_or_else(|| match &field.ident {
            Some(ident) => ident.to_string().trim_start_matches("r#").to_owned(),
            None => i.to_string(),
        });
        let ty = &field.ty;
        let span = ty.span();
        shared.push(quote::quote_spanned!(span=> #nn::Field::visit(&self.#place, #name, visit);));
        changing.push(quote::quote_spanned!(span=> #nn::Field::visit_mut(&mut self.#place, #name, visit);));
        copied.push(quote::quote_spanned!(span=> #place: #nn::Field::deepcopy_field(&self.#place, memo)?));
        bounds.push(quote!(#ty: #nn::Field));
    }
    let ident = &input.ident;
    let type_name = match options.type_name {
        Some(path) => quote!(#path(self)),
        None => ident.to_string().into_token_stream(),
    };
    let (generics, arguments, clause) = input.generics.split_for_impl();
    // A struct without type parameters gets its errors at the fields instead.
    let clause = if input.generics.type_params().next().is_none() {
        quote!(#clause)
    } else {
        let given = clause.map(|c| c.predicates.iter().collect::<Vec<_>>()).unwrap_or_default();
        quote!(where #(#given,)* #(#bounds,)* Self: Send + Sync + 'static)
    };
    let extra = options.extra_repr.map(|path| {
        quote! {
            fn extra_repr(&self) -> ::std::string::String {
                #path(self)
            }
        }
    });
    let (a, visit) = (syn::Lifetime::new("'member", Span::call_site()), format_ident!("visit"));
    Ok(quote! {
        impl #generics #nn::Module for #ident #arguments #clause {
            fn type_name(&self) -> &'static str {
                #type_name
            }

            fn members<#a>(&#a self, #visit: &mut dyn FnMut(&str, #nn::Member<#a>)) {
                let _ = &visit;
                #(#shared)*
            }

            fn members_mut<#a>(&#a mut self, #visit: &mut dyn FnMut(&str, #nn::MemberMut<#a>)) {
                let _ = &visit;
                #(#changing)*
            }

            fn deepcopy_any(
                &self,
                memo: &mut #nn::Memo,
            ) -> #nn::__private::Result<::std::boxed::Box<dyn ::std::any::Any>> {
                #[allow(unused_imports)]
                use #nn::__private::{ByClone as _, ByRefusal as _};
                let _ = &memo;
                ::std::result::Result::Ok(::std::boxed::Box::new(Self { #(#copied),* }))
            }

            #extra
        }

        impl #generics #nn::Stateful for #ident #arguments #clause {
            fn state(&self) -> #nn::__private::Result<#nn::__private::Value> {
                #nn::__private::state(self)
            }

            fn load_state(&mut self, state: &#nn::__private::Value) -> #nn::__private::Result<()> {
                #nn::__private::load_state(self, state)
            }
        }

        impl #generics ::std::fmt::Debug for #ident #arguments #clause {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(&#nn::Module::repr(self))
            }
        }

        impl #generics ::std::fmt::Display for #ident #arguments #clause {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(&#nn::Module::repr(self))
            }
        }
    })
}

/// Our own crates below the façade, which cannot name it.
const BELOW: [&str; 6] =
    ["rushlight-nn", "rushlight-optim", "rushlight-data", "rushlight-io", "rushlight-dist", "rushlight-train"];

struct StructOptions {
    nn: Path,
    type_name: Option<Path>,
    extra_repr: Option<Path>,
}

fn struct_options(input: &DeriveInput) -> Result<StructOptions> {
    let below = std::env::var("CARGO_PKG_NAME").is_ok_and(|name| BELOW.contains(&name.as_str()));
    let mut options = StructOptions {
        nn: if below { syn::parse_quote!(::rushlight_nn) } else { syn::parse_quote!(::rushlight::nn) },
        type_name: None,
        extra_repr: None,
    };
    for attribute in input.attrs.iter().filter(|a| a.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("crate") {
                options.nn = meta.value()?.parse::<LitStr>()?.parse()?;
            } else if meta.path.is_ident("type_name") {
                options.type_name = Some(meta.value()?.parse::<LitStr>()?.parse()?);
            } else if meta.path.is_ident("extra_repr") {
                options.extra_repr = Some(meta.value()?.parse::<LitStr>()?.parse()?);
            } else {
                return Err(meta.error("on a struct, `module` takes `crate`, `type_name` or `extra_repr`"));
            }
            Ok(())
        })?;
    }
    Ok(options)
}

#[derive(Default)]
struct FieldOptions {
    skip: bool,
    rename: Option<String>,
}

fn field_options(field: &syn::Field) -> Result<FieldOptions> {
    let mut options = FieldOptions::default();
    for attribute in field.attrs.iter().filter(|a| a.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("skip") {
                options.skip = true;
            } else if meta.path.is_ident("rename") {
                let name: LitStr = meta.value()?.parse()?;
                if name.value().is_empty() || name.value().contains('.') {
                    return Err(Error::new(name.span(), "a member's name is not empty and has no dot"));
                }
                options.rename = Some(name.value());
            } else {
                return Err(meta.error("on a field, `module` takes `skip` or `rename`"));
            }
            Ok(())
        })?;
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(source: &str) -> std::result::Result<String, String> {
        let input = syn::parse_str::<DeriveInput>(source).map_err(|e| e.to_string())?;
        expand(&input).map(|tokens| tokens.to_string().replace(' ', "")).map_err(|e| e.to_string())
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            ("enum E { A }", "for structs"),
            ("union U { a: u8 }", "for structs"),
            ("struct S { #[module(skp)] a: u8 }", "takes `skip` or `rename`"),
            ("struct S { #[module(rename = \"a.b\")] a: u8 }", "has no dot"),
            ("struct S { #[module(rename = \"\")] a: u8 }", "not empty"),
            ("struct S { #[module(rename)] a: u8 }", "expected `=`"),
            ("#[module(name = \"X\")] struct S;", "takes `crate`, `type_name` or `extra_repr`"),
            ("#[module(crate = \"1x\")] struct S;", ""),
        ];
        for (source, message) in cases {
            let error = expanded(source).expect_err(source);
            assert!(error.contains(message), "{source}: {error}");
        }
    }

    #[test]
    fn fields_are_visited_under_their_names() {
        let code = expanded(
            "#[module(crate = \"my::nn\", type_name = \"Self::kind\")]
             struct S { a: A, #[module(skip)] b: B, #[module(rename = \"d\")] c: C, r#type: D }",
        );
        let code = code.unwrap();
        assert!(code.contains("implmy::nn::ModuleforS{"), "{code}");
        assert!(code.contains("Self::kind(self)"), "{code}");
        for part in ["&self.a,\"a\"", "&self.c,\"d\"", "&self.r#type,\"type\""] {
            assert!(code.contains(part), "{code}");
        }
        assert!(!code.contains("&self.b,"), "{code}");
        assert!(code.contains("Setting(&self.b)).copied(\"fieldbofS\")"), "{code}");
    }

    #[test]
    fn generics_keep_their_bounds_and_ask_for_more() {
        let code = expanded("struct S<'a, T, const N: usize>(T, [T; N]) where T: Clone;").unwrap();
        assert!(code.contains("impl<'a,T,constN:usize>"), "{code}");
        for bound in
            ["T:Clone,", "T:::rushlight::nn::Field,", "[T;N]:::rushlight::nn::Field,", "Self:Send+Sync+'static"]
        {
            assert!(code.contains(bound), "{code}");
        }
        assert!(code.contains("&self.0,\"0\""), "{code}");
    }
}
