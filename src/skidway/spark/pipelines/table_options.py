"""Options of pipelines that write tables with a table of rejected records beside them: where both are, and masks."""
# ruff: noqa: RUF009 - option() makes a field, as dataclasses.field does

from dataclasses import dataclass

from skidway.spark.lake.target import FORMATS, Target
from skidway.spark.pipelines.options import BadPipeline, Common, option, pairs
from skidway.spark.pipelines.values.masks import SALT_VARIABLE, Masks, masks_of, read_salt
from skidway.spark.pipelines.values.rejects import Rejects, parse_share
from skidway.spark.pipelines.values.schemas import Kind

KEEP, DROP = "keep", "drop"


@dataclass(slots=True, kw_only=True)
class TableOptions(Common):
    path: str = option("Where the table is: a local or mounted folder, s3://, gs:// or abfs://.")
    format: str = option("parquet, delta or iceberg.", "parquet")
    max_rejected: str | None = option("Fail when more than this share of a run's records is rejected: 5%.", None)
    rejected: str | None = option("Where the table of rejected records is. Default: PATH-rejected.", None)
    hash: list[str] = option("Field to store as its salted SHA-256: user.email, or key.", [])
    drop: list[str] = option("Field not to store: user.phone, key, headers.", [])
    truncate: list[str] = option("Field of which the first characters are stored: zip=3.", [])
    salt_file: str | None = option(f"File with the salt of hashes. Default: the variable {SALT_VARIABLE}.", None)
    rejected_values: str | None = option(
        "keep or drop the values of rejected records, which cannot be masked. Default: drop if fields are masked.", None
    )
    catalog: str | None = option("Iceberg: a catalog of pyiceberg's configuration. Default: SQLite in PATH.", None)
    table: str | None = option(
        "Iceberg: the table's name in the catalog. Default: skidway.<last part of PATH>, with _ for dots.", None
    )
    store_option: list[str] = option("Object stores: endpoint=URL, region=NAME. Credentials: the environment.", [])

    def __post_init__(self) -> None:
        Common.__post_init__(self)
        pairs(self.store_option, "store_option")
        self.rejects()
        if self.format not in FORMATS:
            raise BadPipeline(f"format must be one of {', '.join(FORMATS)}, not {self.format!r}")
        if self.rejected_values not in (None, KEEP, DROP):
            raise BadPipeline(f"rejected_values must be keep or drop, not {self.rejected_values!r}")

    def rejects(self) -> Rejects:
        return Rejects(None if self.max_rejected is None else parse_share(self.max_rejected))

    def masks_of_fields(self, fields: Kind | None) -> Masks:
        """BadPipeline if they do not fit the fields of the value; None: those are not known."""
        if not (self.hash or self.drop or self.truncate):
            return Masks()
        salt = read_salt(self.salt_file) if self.hash else b""
        return masks_of(self.hash, self.drop, self.truncate, fields, salt)

    @property
    def keeps_rejected_values(self) -> bool:
        masked = self.hash or self.drop or self.truncate
        return self.rejected_values == KEEP or (self.rejected_values is None and not masked)

    def target_by(self, columns: list[str]) -> Target:
        """The table, partitioned by these columns."""
        return Target(self.path, self.format, columns, self.catalog, self.table, self._store_options())

    def rejected_target(self) -> Target:
        path = self.rejected or f"{self.path.rstrip('/')}-rejected"
        table = f"{self.table}_rejected" if self.table else None
        return Target(path, self.format, ["topic"], self.catalog, table, self._store_options())

    def _store_options(self) -> dict[str, str]:
        return pairs(self.store_option, "store_option")
