"""An image's packages as a CycloneDX document: one component for each package of Debian, each of Python, and what is ours."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from email.parser import BytesHeaderParser
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from dev.console import DevError
from dev.sbom.image import Image

# Longer ones are whole licence texts, which some packages put there.
_LICENSE_LENGTH = 100


def document(image: Image, version: str) -> str:
    """CycloneDX 1.6 as JSON, valid by its schema; the same bytes for the same image. Raises DevError."""
    root = Component(
        name=image.short_name or "image",
        version=version,
        type=ComponentType.CONTAINER,
        purl=PackageURL(
            "oci", name=image.short_name.lower() or "image", version=image.digest, qualifiers={"arch": image.architecture}
        ),
        bom_ref=image.digest,
    )
    components = list({str(part.bom_ref.value): part for part in _components(image, version)}.values())
    if not any(part.purl is not None and part.purl.type in {"deb", "pypi"} for part in components):
        raise DevError(
            f"{image.name}: no package manager of Debian or Python has written into it; an empty document would pass every scan"
        )
    bom = Bom(
        metadata=BomMetaData(component=root, timestamp=datetime.fromisoformat(image.created)),
        components=components,
        serial_number=uuid5(NAMESPACE_URL, image.digest),
    )
    bom.register_dependency(root, components)
    text = JsonV1Dot6(bom).output_as_string(indent=2)
    if (fault := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)) is not None:
        raise DevError(f"the document is not valid: {fault}")
    return text + "\n"


def _components(image: Image, version: str) -> Iterator[Component]:
    release = _pairs(image.files.get("usr/lib/os-release") or image.files.get("etc/os-release") or b"")
    yield from _debian(image.files.get("var/lib/dpkg/status", b""), release)
    for path, text in sorted(image.files.items()):
        if path.endswith(".dist-info/METADATA"):
            yield _python(text)
    if (interpreter := image.environment.get("PYTHON_VERSION")) is not None:
        # Of the images of python:VERSION: built from source, so that dpkg doesn't know it.
        yield _component("python", interpreter, PackageURL("generic", name="python", version=interpreter), ComponentType.PLATFORM)
    yield _component("inference-operator", version, PackageURL("generic", name="inference-operator", version=version))


def _debian(status: bytes, release: Mapping[str, str]) -> Iterator[Component]:
    for stanza in status.decode().split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): *(.*)$", stanza, re.MULTILINE))
        if not fields.get("Status", "").endswith(" installed"):
            continue
        name, version = fields["Package"], fields["Version"]
        qualifiers = {"arch": fields.get("Architecture", "all")}
        if "ID" in release:
            qualifiers["distro"] = f"{release['ID']}-{release.get('VERSION_ID', 'unstable')}"
        if source := fields.get("Source", "").partition(" ")[0]:
            qualifiers["upstream"] = source
        yield _component(name, version, PackageURL("deb", release.get("ID", "debian"), name, version, qualifiers))


def _python(metadata: bytes) -> Component:
    fields = BytesHeaderParser().parsebytes(metadata)
    name, version = str(fields["Name"]), str(fields["Version"])
    normal = re.sub(r"[-_.]+", "-", name).lower()
    said = str(fields["License-Expression"] or fields["License"] or "").strip()
    licenses = [LicenseFactory().make_from_string(said)] if said and len(said) <= _LICENSE_LENGTH and "\n" not in said else []
    return _component(name, version, PackageURL("pypi", name=normal, version=version), licenses=licenses)


def _component(
    name: str,
    version: str,
    purl: PackageURL,
    kind: ComponentType = ComponentType.LIBRARY,
    licenses: Iterable[License] = (),
) -> Component:
    return Component(name=name, version=version, type=kind, purl=purl, bom_ref=str(purl), licenses=licenses)


def _pairs(text: bytes) -> dict[str, str]:
    """The variables of os-release."""
    return {key: value.strip("\"'") for key, value in re.findall(r"^([A-Z_]+)=(.*)$", text.decode(), re.MULTILINE)}
