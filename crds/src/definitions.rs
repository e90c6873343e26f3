//! The definitions of the resources, as they are installed in a cluster.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use crate::{CkbProbe, CkbProfile, NodeProbe, ProfilePart};

/// The definitions of all four resources.
pub fn all() -> [CustomResourceDefinition; 4] {
    [
        CkbProbe::crd(),
        without_rules(NodeProbe::crd()),
        CkbProfile::crd(),
        ProfilePart::crd(),
    ]
}

/// Only the operator writes a NodeProbe's spec, out of CkbProbes that passed all rules; and what the rules of every kind may
/// cost, for each of a node's assignments, would be more than the API server lets one resource have.
fn without_rules(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    let versions = definition.spec.versions.iter_mut();
    let schemas = versions.filter_map(|version| version.schema.as_mut());
    for schema in schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut()) {
        remove_rules(schema);
    }
    definition
}

fn remove_rules(schema: &mut JSONSchemaProps) {
    schema.x_kubernetes_validations = None;
    for field in schema
        .properties
        .iter_mut()
        .flat_map(|all| all.values_mut())
    {
        remove_rules(field);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(item)) = &mut schema.items {
        remove_rules(item);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut schema.additional_properties {
        remove_rules(value);
    }
}

#[cfg(test)]
mod tests;
