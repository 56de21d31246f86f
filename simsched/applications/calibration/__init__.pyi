from .application_fit import fit_folder as fit_folder, write_documents as write_documents
from .fit_accuracy import KINDS as KINDS, Truth as Truth, compare_folder as compare_folder
